"""The yardstick: a bare Flask application that answers GET /1500 with 1500 bytes of JSON."""

from flask import Flask, Response

app = Flask(__name__)


@app.get("/<int:size>")
def get(size: int) -> Response:
    return Response(b'{"constant":"%b"}' % (b"x" * (size - 15)), content_type="application/json")
