"""The figures of the service in the text format of Prometheus."""

from typing import Any

from flask import Blueprint

from metrics import exposition
from wire import Response, authorize, operation, request

pages = Blueprint("prometheus_pages", __name__)


def register(app: Any) -> None:
    app.register_blueprint(pages)


@pages.get("/metrics")
@operation(reads="nothing", role=None)
def get_metrics() -> Response:
    """Show an owner or admin the metrics of the service, in the format of Prometheus."""
    authorize(request().authenticate(), "admin", "read")
    return Response(exposition().encode(), content_type="text/plain; version=0.0.4; charset=utf-8")
