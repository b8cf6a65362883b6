"""OAuth for programs that know only the address of /mcp: a member allows them a key, which works only there.

A program reads two documents, registers, and opens /oauth/authorize in its person's browser. Nothing is
stored until a member allows it there: a client's id is what the client said about itself. The program then
exchanges a code for its key. docs/oauth.md compares this with the standards.
"""

import base64
import re
import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import orjson
from flask import Blueprint
from marshmallow import EXCLUDE, Schema, ValidationError, fields, validate
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.urls import iri_to_uri

import limits
import schemas
from database import Row, digest, to_json
from errors import ApiError, BadBody, Invalid, TooMany
from members import OAUTH_PREFIX, SCOPES, ApiKey, Transaction
from models import write
from parts import tools
from parts.page import page
from times import first_id, now, seconds_since
from wire import Request, Response, as_api_error, load_arguments, operation, request

connections = Blueprint("oauth", __name__)  # with the name `api`, the document would show its schemas to all
AT_MCP, FOR_CODE = "mcp:", "code:"  # the audience of a program's key, and of a key that waits for its code
CODE_SECONDS = 60.0
OFFERED = SCOPES[:2]  # no program gets more than the scope `agent`
# A program on the person's own computer chooses its port when it starts (RFC 8252, 7.3).
LOOPBACK = re.compile(r"(http://(?:localhost|127\.0\.0\.1|\[::1\]))(?::[0-9]{1,5})?(/[\w./~%-]*)?", re.A)
VERIFIER, CHALLENGE = re.compile(r"[A-Za-z0-9._~-]{43,128}"), re.compile(r"[A-Za-z0-9_-]{43}")
MAX_CLIENT_ID, MAX_CLIENT_NAME = 2000, 40  # characters; a client's id is a part of an address

calls = limits.RateLimit(60, 60)  # POST requests of programs, by client address


def register(app: Any) -> None:
    if app.config["OAUTH"]["enabled"]:
        app.register_blueprint(connections)
        app.handlers |= dict.fromkeys(ANSWERS, ("oauth", answer_program))
        app.handlers |= dict.fromkeys(tools.PATHS, ("tools", answer_at_mcp))
        app.error_pages["/oauth/authorize"] = refuse_connection


class OAuthError(Invalid):
    """An error with a code of OAuth. The API reports it as an error of the field `query`."""

    def __init__(self, error: str, text: str):
        super().__init__(("query", text))
        self.error, self.args = error, (text,)


def answer_program(current: Request) -> Response:
    """Answer a program. All errors have the form of OAuth."""
    method, view = ANSWERS[current.path]
    try:
        if current.method.replace("HEAD", "GET") != method:
            raise MethodNotAllowed([method])
        if method == "POST" and not (verdict := calls.hit(current.client_address)).allowed:
            raise TooMany(verdict.seconds)
        return Response(to_json(view()), 201 if view is register_client else 200)
    except Exception as error:
        shown = as_api_error(error)
        status, code = (400, shown.error) if isinstance(shown, OAuthError) else (shown.status, shown.code)
        return Response(to_json({"error": code, "error_description": str(shown)}), status, shown.headers)


def answer_at_mcp(current: Request) -> Response:
    """Answer an agent. Its key may be a program's, and a 401 says how a program gets one."""
    key = current.headers.get("Authorization", "").partition(" ")[2].strip()
    if key.startswith(OAUTH_PREFIX):
        current.environ["tasks.audience"] = AT_MCP
    response = tools.answer_agent(current)
    if response.status_code == 401:
        found = f'resource_metadata="{base_url()}/.well-known/oauth-protected-resource/mcp", scope="agent"'
        wrong = 'error="invalid_token", ' if key else ""
        response.headers = {**response.headers, "WWW-Authenticate": f"Bearer {wrong}{found}"}
    return response


def base_url() -> str:
    """Return the service's URL in ASCII, as programs compare it and as headers can carry it."""
    return iri_to_uri(request().config["SERVER"]["base_url"])


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def read_fields(text: str) -> dict[str, str]:
    """Return the fields of a query or form. Two readers could take different values of a repeated one."""
    pairs = parse_qsl(text, keep_blank_values=True)
    if len(found := dict(pairs)) < len(pairs):
        raise OAuthError("invalid_request", "a parameter is repeated")
    return found


def read_form() -> dict[str, str]:
    return read_fields(request().read(limits.FORM_BYTES, limits.READ_SECONDS).decode("latin-1"))


def describe_resource() -> Row:
    """Describe /mcp to a program without a key (RFC 9728)."""
    resource = {"resource": f"{base_url()}/mcp", "authorization_servers": [base_url()]}
    return resource | {"scopes_supported": OFFERED, "bearer_methods_supported": ["header"]}


def describe_server() -> Row:
    """Describe how a program gets a key (RFC 8414, 7009 and 9207)."""
    return {
        "issuer": base_url(),
        "authorization_endpoint": f"{base_url()}/oauth/authorize",
        "token_endpoint": f"{base_url()}/oauth/token",
        "registration_endpoint": f"{base_url()}/oauth/register",
        "revocation_endpoint": f"{base_url()}/oauth/revoke",
        "scopes_supported": OFFERED,
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "authorization_response_iss_parameter_supported": True,
    }


class Registration(Schema):
    """The fields of a registration that we read; all others are ignored."""

    redirect_uris = fields.List(fields.String(), required=True, validate=validate.Length(1, 20))
    client_name = schemas.Name(100, allow_none=True, load_default=None)

    class Meta:
        unknown = EXCLUDE


def load_client(said: Any) -> tuple[str, list[str]]:
    """Return a registration's addresses and its name, as our page shows it. Raises `ValidationError`."""
    client = load_arguments(Registration(), said)
    name = "".join(filter(str.isprintable, client["client_name"] or "")).strip()
    return name[:MAX_CLIENT_NAME] or "A program", client["redirect_uris"]


def allowed(uri: str) -> str | None:
    """Return an address to which codes may go, on a person's own computer without its port; or None."""
    if LOOPBACK.fullmatch(uri):
        return LOOPBACK.sub(r"\1\2", uri)
    return uri if uri in request().config["OAUTH"]["callbacks"] else None


def register_client() -> Row:
    """Register a client (RFC 7591)."""
    try:
        name, uris = load_client(request().get_json())
    except (ValidationError, BadBody) as error:
        raise OAuthError("invalid_client_metadata", f"the registration is not valid: {error}") from error
    uris = [uri for uri in uris if allowed(uri)]  # Cursor registers three, and uses one of them
    id = base64url(to_json([name, list(dict.fromkeys(map(allowed, uris)))]))
    if not uris or len(id) > MAX_CLIENT_ID:
        problem = "no address is on the person's own computer or in the setting oauth.callbacks"
        raise OAuthError("invalid_redirect_uri", "the addresses are too long" if uris else problem)
    client = {"client_id": id, "client_name": name, "redirect_uris": uris, "response_types": ["code"]}
    return client | {"grant_types": ["authorization_code"], "token_endpoint_auth_method": "none"}


def read_client(id: str) -> tuple[str, list[str]]:
    """Return the name and the addresses in a client's id, which anybody could have written."""
    try:
        name, uris = orjson.loads(base64.urlsafe_b64decode(id + "=" * (-len(id) % 4)))
        return load_client({"client_name": name, "redirect_uris": uris})
    except (ValueError, TypeError, ValidationError) as error:
        raise OAuthError("invalid_client", "the program has not registered here") from error


def check_resource(sent: Row) -> None:
    """Raise `OAuthError` if the key is meant for another service (RFC 8707)."""
    resource, ours = sent.get("resource", "").lower().rstrip("/"), base_url().lower()
    if resource not in ("", ours, f"{ours}/mcp"):
        raise OAuthError("invalid_target", f"the key is for {base_url()}/mcp, and for no other address")


def read_request(query: str) -> Row:
    """Return what a program asks for, alike for the page and the API. Raises `OAuthError`."""
    asked = read_fields(query)
    name, uris = read_client(asked.get("client_id", ""))
    uri = asked.get("redirect_uri", "")
    if not allowed(uri):
        raise OAuthError("invalid_redirect_uri", f"the code may not go to {uri[:100]!r} (oauth.callbacks)")
    if allowed(uri) not in uris:
        raise OAuthError("invalid_redirect_uri", "the program has not registered the address for the code")
    if asked.get("response_type") != "code" or asked.get("code_challenge_method") != "S256":
        raise OAuthError("invalid_request", "the program must ask for a code, with a challenge by S256")
    if not CHALLENGE.fullmatch(asked.get("code_challenge", "")):
        raise OAuthError("invalid_request", "the program has sent no valid code_challenge")
    check_resource(asked)
    only_reads = {*asked.get("scope", "").split()}.intersection(OFFERED) == {"read"}
    place = "this computer" if LOOPBACK.fullmatch(uri) else urlsplit(uri).netloc
    return asked | {"name": name, "place": place, "only_reads": only_reads}


def location(asked: Row, **said: str) -> str:
    """Return the address at which the program waits, with the response and its issuer (RFC 9207)."""
    said |= {"state": asked["state"]} if "state" in asked else {}
    return f"{asked['redirect_uri']}?{urlencode(said | {'iss': base_url()})}"


def refuse_connection(error: ApiError) -> Response:
    """Show why a program cannot be connected. The error is not sent to the program's address."""
    status = 400 if isinstance(error, OAuthError) else error.status
    return page("connect.html", status, error.headers, refused=str(error))


@connections.get("/oauth/authorize")
@operation(reads="nothing", role=None)
def show_connection() -> Response:
    """Show the page on which a member allows a program to use /mcp. Its script finds the member."""
    asked, config = read_request(request().query_string.decode("latin-1")), request().config
    values = {"days": max(1, round(config["OAUTH"]["days"])), "by_proxy": config["SERVER"]["sign_in_header"]}
    return page("connect.html", asked=asked, refusal=location(asked, error="access_denied"), **values)


class ConnectionInput(schemas.Strict):
    query = schemas.Text(8000, required=True)
    scope = schemas.Choice(OFFERED, required=True)
    member_id = schemas.Id(allow_none=True)


ConnectionShown = schemas.response_schema("Connection", secret=True, location=str)


@connections.post(f"{schemas.API}/connections")
@operation(ConnectionInput(), ConnectionShown, status=201)
def connect(transaction: Transaction, query: str, scope: str, **holder: Any) -> Row:
    """Allow a program what /oauth/authorize shows. The response has the address to go to, with the code."""
    asked, days = read_request(query), request().config["OAUTH"]["days"]
    if asked["only_reads"] and scope != "read":
        raise Invalid(("scope", "must be read, since the program asks for no more"))
    # OAuth 2.1 does not send the address again with the code, so the code contains its digest.
    code = f"{secrets.token_urlsafe(32)}.{digest(asked['redirect_uri'])}"
    hash = FOR_CODE + digest(proof(code, asked["code_challenge"], asked["client_id"]))
    until = min(ApiKey.limit_of(transaction.actor) or "9999", now(days * 86400))
    made = {"name": asked["name"], "scope": scope, "expires_at": until, "hash": hash, "prefix": ""}
    ApiKey.grant(transaction, **made, **holder)
    return {"location": location(asked, code=code)}


def proof(code: str, challenge: str, client_id: str) -> str:
    """Return what a program must know to get its key; only the digest is stored."""
    return to_json([code, challenge, client_id]).decode()


def waiting(proven: str) -> Row | None:
    """Return the holder of the key that has waited for this proof for less than `CODE_SECONDS`."""
    holder = ApiKey.caller(proven, audience=FOR_CODE)
    return holder if holder and holder["key_id"] > first_id(now(), -CODE_SECONDS) else None


def give_token() -> Row:
    """Exchange a code for its key. The hash of the key replaces the code's, so a code works once.

    A repeated code does not revoke the key: only the program itself can prove that it asked for the code, and
    it may send the code again if the response was lost.
    """
    form = read_form()
    if (kind := form.get("grant_type", "")) != "authorization_code":
        error = "unsupported_grant_type" if kind else "invalid_request"
        raise OAuthError(error, "grant_type must be authorization_code")
    check_resource(form)
    names = ("code", "code_verifier", "client_id", "redirect_uri")
    code, verifier, client_id, uri = (form.get(name, "") for name in names)
    proven = proof(code, base64url(sha256(verifier.encode()).digest()), client_id)
    is_valid = VERIFIER.fullmatch(verifier) and (not uri or code.endswith(f".{digest(uri)}"))
    if is_valid and waiting(proven):  # a stranger takes no turn to write
        with write(request_id=request().request_id):
            if holder := waiting(proven):
                key, until = OAUTH_PREFIX + secrets.token_urlsafe(32), holder["key_expires_at"]
                ApiKey.set_columns(holder["key_id"], hash=AT_MCP + digest(key), prefix=key[:12])
                token = {"access_token": key, "token_type": "Bearer", "scope": holder["scope"]}
                return token | {"expires_in": int(-seconds_since(until))}
    raise OAuthError("invalid_grant", "the code is unknown, used, over a minute old, or another client's")


def revoke() -> Row:
    """Revoke the key that a program gives back (RFC 7009)."""
    if holder := ApiKey.caller(read_form().get("token", ""), audience=AT_MCP):
        with write(holder, request().request_id) as transaction:
            ApiKey.revoke(transaction, holder["key_id"])
    return {}


ANSWERS: dict[str, tuple[str, Callable[[], Row]]] = {
    "/.well-known/oauth-protected-resource/mcp": ("GET", describe_resource),
    "/.well-known/oauth-protected-resource": ("GET", describe_resource),
    "/.well-known/oauth-authorization-server": ("GET", describe_server),
    "/.well-known/openid-configuration": ("GET", describe_server),  # programs look here below a path
    "/oauth/register": ("POST", register_client),
    "/oauth/token": ("POST", give_token),
    "/oauth/revoke": ("POST", revoke),
}
