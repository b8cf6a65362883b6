"""Sessions of browsers: their cookie, and how they start and end; the address that a proxy has signed in."""

import socket
import unicodedata
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from peewee import fn
from werkzeug.http import dump_cookie

import schemas
from app import api
from database import Row, placeholder, statement
from errors import Conflict, Forbidden
from members import SESSION_DAYS, ApiKey, Member, Transaction
from settings import port_of
from times import now, seconds_since
from wire import Request, operation, request, root_path


def register(app: Any) -> None:
    app.session_key = session_key


class Sessions:
    MAX = 100  # of a member, started with one key or with none; a new one ends the oldest

    @classmethod
    def start(cls, transaction: Transaction, name: str) -> tuple[Row, str]:
        """Make the key of a session of the actor. It has the scope of the key in use, and ends with it."""
        actor, started_with = transaction.actor, transaction.actor.get("key_id")
        made = ApiKey.issue(
            transaction,
            actor["id"],
            name=name,
            scope=actor.get("scope", "write"),
            expires_at=min(actor.get("key_expires_at") or "9999", now(SESSION_DAYS * 86400)),
            is_session=None if ApiKey.limit_of(actor) else 1,
            started_with=started_with,
        )
        cls.revoke_oldest.run(member_id=actor["id"], started_with=started_with or "", now=transaction.at)
        return made

    @statement
    def revoke_oldest(cls: Any):
        """Revoke sessions of a member that the key `started_with` started, all but the newest `MAX`.

        An empty `started_with` stands for links and a proxy. Otherwise a key that only reads could end the
        sessions in which its member works.
        """
        is_theirs = (ApiKey.member == placeholder("member_id")) & ApiKey.revoked_at.is_null()
        is_theirs &= fn.COALESCE(ApiKey.started_with, "") == placeholder("started_with")
        sessions = ApiKey.select(ApiKey.id).where(is_theirs, ApiKey.is_started).order_by(ApiKey.id.desc())
        return ApiKey.revoke_where(ApiKey.id.in_(sessions.limit(-1).offset(cls.MAX)))


@lru_cache(maxsize=8)
def session_cookie(base_url: str) -> str:
    """Return the name of the session cookie, with the port: browsers send a cookie to all ports of a host."""
    return f"tasks_session_{port_of(base_url)}"


def session_key(current: Request) -> str | None:
    """Return the key in the session's cookie, or None unless one of our own pages makes the request.

    Browsers also send the cookie with requests that pages on other ports of the host make.
    """
    if not current.in_api or "HTTP_COOKIE" not in current.environ:
        return None
    site, mode = current.headers.get("Sec-Fetch-Site"), current.headers.get("Sec-Fetch-Mode")
    if site is not None:
        is_typed = site == "none" and mode == "navigate" and current.method == "GET"
        is_ours = site == "same-origin" or is_typed
    elif current.origin is not None:
        is_ours = has_own_origin(current)
    else:  # a page of another origin cannot send this header: we answer no preflight
        is_ours = "X-Requested-With" in current.headers
    return current.cookies.get(session_cookie(current.config["SERVER"]["base_url"])) if is_ours else None


def base_origin(current: Request) -> str:
    """Return the origin of `base_url`, as browsers write it."""
    url = urlsplit(current.config["SERVER"]["base_url"].lower())
    default = {"http": ":80", "https": ":443"}[url.scheme]
    return f"{url.scheme}://{url.netloc.removesuffix(default)}"


def has_own_origin(current: Request) -> bool:
    """Return whether a page under `base_url`, or at the address in use, sent this request."""
    host = current.headers.get("Host", "").lower()
    return current.origin in (base_origin(current), f"{current.scheme}://{host}")


def is_foreign_form(current: Request) -> bool:
    """Return whether a page of another origin sent this form."""
    if site := current.headers.get("Sec-Fetch-Site"):
        return site in ("cross-site", "same-site")
    return current.origin is not None and not has_own_origin(current)


def proxy_user(current: Request) -> str:
    """Return the e-mail address that a proxy has signed in, from `server.sign_in_header`; "" for nobody.

    The header counts if the connection comes from `server.sign_in_networks`, whatever X-Forwarded-For
    says, or from a unix socket.
    """
    server, sock = current.config["SERVER"], current.environ.get("gunicorn.socket")
    said = current.headers.get(server["sign_in_header"] or "", "")
    if not said or sock is None:
        return ""
    with suppress(UnicodeError):  # proxies write UTF-8, which WSGI passes on as latin-1
        text = said.encode("latin-1").decode()
        # NFC would make another address of it: the Kelvin sign would become a K.
        said = text if unicodedata.is_normalized("NFC", text) else said
    if sock.family == socket.AF_UNIX:
        return said
    before = current.environ.get("werkzeug.proxy_fix.orig", current.environ)  # ProxyFix changes REMOTE_ADDR
    address = ip_address(before["REMOTE_ADDR"])
    address = getattr(address, "ipv4_mapped", None) or address
    return said if any(address in each.network for each in server["sign_in_networks"]) else ""


class SessionInput(schemas.Strict):
    api_key = schemas.Text(255, required=True)

    EXAMPLE = {"api_key": "tms_…"}


# The cookie contains the secret.
SessionShown = schemas.response_schema(
    "Session", secret=True, member=schemas.MemberShown, key=schemas.KeyShown
)


def set_session_cookie(key: str, expires_at: str) -> None:
    """Set the cookie with a session's key, which neither scripts nor other sites can read."""
    request().success_headers["Set-Cookie"] = dump_cookie(
        session_cookie(request().config["SERVER"]["base_url"]),
        key,
        max_age=max(0, -round(seconds_since(expires_at))),
        path=root_path() or "/",
        secure=base_origin(request()).startswith("https:"),
        httponly=True,
        sync_expires=False,
        samesite="Strict",
    )


# Signs in a browser's User-Agent, and the names that people know; the first sign found counts.
BROWSERS = {"Edg": "Edge", "OPR": "Opera", "SamsungBrowser": "Samsung Internet", "Firefox": "Firefox"}
BROWSERS |= {"FxiOS": "Firefox", "CriOS": "Chrome", "Chrome": "Chrome", "Safari": "Safari"}
SYSTEMS = {"iPhone": "iPhone", "iPad": "iPad", "Android": "Android", "CrOS": "ChromeOS"}
SYSTEMS |= {"Windows": "Windows", "Mac OS X": "macOS", "Linux": "Linux"}


@api.post("/session")
@operation(SessionInput(), SessionShown, status=201, role=None, raises=(Forbidden,), headers=("Set-Cookie",))
def start_session(transaction: Transaction, api_key: str) -> Row:
    """Sign in a browser with an API key. The session gets its own key for 30 days, in a cookie."""
    transaction.actor = request().identify(api_key)
    request().app.count(request())
    ApiKey.brakes.check(transaction.actor)
    return start_session_of(transaction)


def start_session_of(transaction: Transaction) -> Row:
    """Start a session for the actor. Its key is in the cookie and nowhere else."""
    key, secret = Sessions.start(transaction, browser_name(request().user_agent.string))
    set_session_cookie(secret, key["expires_at"])
    return {"member": Member.shown(key["member"]["id"]), "key": key}


def browser_name(agent: str) -> str:
    """Return a short name for a browser, such as "Firefox on Linux"."""
    browser = next((name for sign, name in BROWSERS.items() if f"{sign}/" in agent), "Browser")
    system = next((name for sign, name in SYSTEMS.items() if sign in agent), None)
    return f"{browser} on {system}" if system else browser


@api.delete("/session")
@operation(schemas.REVOKE, schemas.RevokedShown, raises=(Conflict,), headers=("Set-Cookie",), scope="read")
def end_session(transaction: Transaction, made: str = "false") -> Row:
    """Sign out: end the cookie's session; made=true also revokes what was made in it. A key gets a 409."""
    if "HTTP_AUTHORIZATION" in request().environ:
        raise Conflict("the key in the Authorization header is not a session; revoke it by DELETE /keys/:id")
    id = transaction.actor["key_id"]
    ApiKey.end(transaction, id, made == "true")
    set_session_cookie("", transaction.at)
    return {"id": id, "revoked": True}
