"""The page for people: its frame and files, the pages of links and documents, and the sign-in by a proxy."""

import gzip
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import flask_swagger_ui
from flask import render_template
from marshmallow import ValidationError
from werkzeug.utils import send_from_directory

import schemas
from app import accept_invitation, api, pages
from commands import HOME
from database import Row
from errors import ApiError, Forbidden, Gone, NotFound
from members import FRESH_SECONDS, ApiKey, Invitation, Member, Transaction
from metrics import OTHER
from models import write
from parts.openapi import form_schemas
from parts.sessions import is_foreign_form, proxy_user, session_cookie, start_session_of
from times import local_time, now
from wire import Request, Response, operation, request, root_path

SWAGGER_UI = Path(flask_swagger_ui.__file__).with_name("dist")
STATIC = HOME / "static"
LISTS = ("changes", "inbox", "members", "projects", "tasks", "today")  # which the page loads
PACKED_FROM = 1000  # bytes
FILE_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
PACKED = {file.name: FILE_TYPES[file.suffix] for file in STATIC.iterdir() if file.suffix in FILE_TYPES}


def register(app: Any) -> None:
    app.error_pages["/enroll/"] = show_refusal
    app.handlers |= {f"{schemas.API}/{name}": (OTHER, answer_list) for name in LISTS}


def answer_list(current: Request) -> Response:
    """Answer a request for a list; the page gets it compressed.

    Programs do not: near the server, compressing takes longer than sending. No other site can send the
    page's header, so the size of a response never helps to guess what is in it (BREACH).
    """
    response = current.app.respond(current)
    is_of_page = current.method == "GET" and "HTTP_X_REQUESTED_WITH" in current.environ
    return pack(response) if is_of_page else response


def pack(response: Response) -> Response:
    """Compress a large response if the browser accepts that."""
    response.headers = {**response.headers, "Vary": "Accept-Encoding"}
    if len(response.data) > PACKED_FROM and request().accept_encodings.quality("gzip"):
        response.data = gzip.compress(response.data, 1, mtime=0)
        response.headers = {**response.headers, "Content-Encoding": "gzip"}
    return response


def show_refusal(error: ApiError) -> Response:
    """Show why a link cannot be used."""
    return page("enroll.html", error.status, error.headers, refused=str(error))


def page(template: str, status: int = 200, more: Mapping[str, str] | None = None, **values: Any) -> Response:
    """Return an HTML page, which may load only its own scripts and styles."""
    nonce = secrets.token_urlsafe(16)
    workspace, server = request().config["WORKSPACE"], request().config["SERVER"]
    values |= {"workspace_name": workspace["name"], "timezone": workspace["timezone"]}
    values |= {"base_url": server["base_url"], "sign_out": server["sign_out_url"], "root": root_path()}
    values |= {"static": f"{root_path()}/static/{static_version()}", "is_mailed": Invitation.is_mailed}
    values["has_oauth"] = request().config["OAUTH"]["enabled"]
    with request().app.app_context():
        html = render_template(template, nonce=nonce, api=schemas.API, **values)
    styles = values.get("styles", f"'nonce-{nonce}'")
    policy = (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; connect-src 'self'; "
        f"img-src 'self' data: blob:; font-src 'self'; manifest-src 'self'; style-src 'self' {styles}; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
    return pack(Response(html.encode(), status, {**headers, **(more or {})}, "text/html; charset=utf-8"))


OF_A_LINK: Row = {"gives": "text/html", "reads": "nothing", "role": None}


@pages.get("/enroll/<string:token>")
@operation(**OF_A_LINK, raises=(Gone,))
def show_enrollment(token: str) -> Response:
    """Show the page of a link, with a button to join or to sign in."""
    # With no-referrer, browsers send the form's origin as null, as they may do for pages of other sites.
    referrer = {"Referrer-Policy": "same-origin"}
    invitation = Invitation.open(token)
    until = local_time(invitation["expires_at"])
    return page("enroll.html", more=referrer, invitation=invitation, until=until)


@pages.post("/enroll/<string:token>")
@operation(**OF_A_LINK, status=303, raises=(Forbidden, Gone), headers=("Location", "Set-Cookie"))
def join(transaction: Transaction, token: str) -> Response:
    """Use an enrollment or sign-in link: start a session, and redirect to the board."""
    if is_foreign_form(request()):  # login CSRF: the victim would work as another member
        raise Forbidden("a page of another site has sent this form; open the link itself")
    accept_invitation(transaction, token)
    start_session_of(transaction)
    headers = request().success_headers | {"Location": f"{root_path()}/"}
    return Response(b"", 303, headers, "text/html; charset=utf-8")


@pages.get("/")
@operation(reads="nothing", role=None)
def show_board() -> Response:
    """Show the board in a browser, and the addresses of this service to other programs."""
    base_url = request().config["SERVER"]["base_url"]
    if dict(request().accept_mimetypes).get("text/html"):
        values: Row = {"modules": imported("page.js"), "schemas": form_schemas(base_url), "now": now()}
        shown = sign_in_by_proxy() or page("board.html", more=request().success_headers, **values)
    else:
        name = request().config["WORKSPACE"]["name"]
        text = f"{name}\n\nThe page for people, in a browser: {base_url}/\n"
        text += f"The API: {base_url}{schemas.API}/docs\n"
        text += f"Health: {base_url}{schemas.API}/health\n"
        shown = Response(text.encode(), content_type="text/plain; charset=utf-8")
    shown.headers = {**shown.headers, "Vary": "Accept, Accept-Encoding"}
    return shown


@cache
def static_version() -> str:
    """Return a digest of the board's files, which is a part of their addresses."""
    contents = [file.name.encode() + file.read_bytes() for file in sorted(STATIC.iterdir())]
    return sha256(b"".join(contents)).hexdigest()[:16]


@cache
def imported(name: str) -> list[str]:
    """Return a module with all that it imports; the others are loaded when they are needed."""
    names = re.findall(r'from "\./(\w+\.js)"', (STATIC / name).read_text())
    return sorted({name}.union(*map(imported, names)))


@cache
def packed(name: str) -> bytes:
    """Return a file of the board as gzip; compressed once."""
    return gzip.compress((STATIC / name).read_bytes(), mtime=0)


@pages.get("/static/<string:version>/<string:name>")
@operation(reads="nothing", role=None)
def show_static_file(version: str, name: str) -> Any:
    """Serve a file of the board, which browsers cache: after an upgrade its address is another."""
    if version != static_version():  # the page was loaded before an upgrade
        return send_from_directory(STATIC, name, request().environ, conditional=False)
    kept = {"Cache-Control": f"public, max-age={365 * 86400}, immutable", "Vary": "Accept-Encoding"}
    if name in PACKED and request().accept_encodings.quality("gzip"):
        return Response(packed(name), 200, kept | {"Content-Encoding": "gzip"}, PACKED[name])
    sent = send_from_directory(STATIC, name, request().environ, conditional=False)
    sent.headers.update(kept)
    return sent


def sign_in_by_proxy() -> Response | None:
    """Start or renew the session of the proxy's user; return a page to show instead of the board, if any."""
    current, email = request(), proxy_user(request())
    if not email or current.method == "HEAD":
        return None
    with suppress(ValidationError):
        email = schemas.Email().deserialize(email)
    member = Member.by_email.one(email=email) or {}
    if member.get("status") != Member.ACTIVE:
        return page("enroll.html", 403, stranger=email, owners=Member.active_owners.all())
    key = current.cookies.get(session_cookie(current.config["SERVER"]["base_url"]), "")
    session = ApiKey.caller(key, "session") or {}
    is_theirs = session.get("id") == member["id"]
    if is_theirs and session["key_signed_in_at"] > now(-FRESH_SECONDS / 2):
        return None
    if current.headers.get("Sec-Fetch-Site") == "cross-site":  # browsers do not send the cookie then
        return page("again.html")
    with write(request_id=current.request_id) as transaction:  # no other GET writes
        transaction.actor = current.caller = Member.active(member["id"])
        if is_theirs:
            ApiKey.set_columns(session["key_id"], signed_in_at=transaction.at)
        else:
            start_session_of(transaction)
    return None


@api.get("/docs")
@operation(gives="text/html", role=None)
def get_docs() -> Response:
    """Show this document as a page on which you can try requests."""
    return page("docs.html", styles="'unsafe-inline'")


@api.get("/docs/<string:name>")
@operation(role=None)
def get_docs_file(name: str) -> Any:
    """Serve a file of the documentation's page."""
    if name not in ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"):
        raise NotFound("file")
    return send_from_directory(SWAGGER_UI, name, request().environ, conditional=False, max_age=86400)
