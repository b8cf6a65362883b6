"""The measure: a bare Flask application that answers GET /1500 with 1500 bytes of constant JSON."""

from functools import cache

from flask import Flask, Response

app = Flask(__name__)


@cache
def constant(size: int) -> bytes:
    return b'{"constant":"%b"}' % (b"x" * (size - 15))


@app.get("/<int:size>")
def get(size: int) -> Response:
    return Response(constant(size), content_type="application/json")
