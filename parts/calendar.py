"""A member's calendar: its link, and the due tasks and meetings for calendar programs."""

from typing import Any

import werkzeug
from flask import Blueprint

import limits
import schemas
from database import Row, db
from errors import not_found
from meetings import calendar
from members import CALENDAR, ApiKey, Transaction
from schemas import API
from wire import operation, request

api = Blueprint("calendar", __name__, url_prefix=API)
pages = Blueprint("calendar_pages", __name__)


def register(app: Any) -> None:
    app.register_blueprint(api)
    app.register_blueprint(pages)


CALENDAR_TYPE = "text/calendar; charset=utf-8"


@api.post("/calendar")
@operation(gives=schemas.CalendarShown, status=201)
def link_calendar(transaction: Transaction) -> Row:
    """Make the link of your calendar, which is shown only here. It replaces the old link."""
    key, base_url = ApiKey.link_calendar(transaction), request().config["SERVER"]["base_url"]
    return {"url": f"{base_url}/calendar/{key}.ics"}


@api.delete("/calendar")
@operation(gives=schemas.CalendarRevokedShown)
def unlink_calendar(transaction: Transaction) -> Row:
    """Revoke the link of your calendar, if there is one."""
    return {"revoked": ApiKey.revoke_calendar.run(member_id=transaction.actor["id"], now=transaction.at) > 0}


@pages.get("/calendar/<string:key>.ics")
@operation(reads="nothing", role=None)
def show_calendar(key: str) -> Any:
    """Show calendar programs the due tasks and the meetings of the link's member."""
    current = request()
    current.caller = ApiKey.caller(key, CALENDAR) or not_found("calendar")
    current.app.count(current)
    with db.limit(limits.QUERY_SECONDS), db.viewed_by(current.viewer):
        data = calendar(current.caller["id"], current.config)
    answer = werkzeug.Response(data, 200, {"Cache-Control": "private, no-cache"}, content_type=CALENDAR_TYPE)
    answer.add_etag()
    return answer.make_conditional(current.environ)
