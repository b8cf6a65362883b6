"""An operation of the API: what its view declares, and what is done before and after the view."""

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache, partial, wraps
from typing import Any

from marshmallow import Schema, ValidationError
from werkzeug.datastructures import MultiDict

import limits
import schemas
from database import Row, Viewer, db, digest
from errors import ApiError, Forbidden, Invalid, TooMany, Unavailable
from lists import NAMED
from members import SCOPES, Transaction, permit
from models import StoredAnswer, Task, write
from webhooks import deliver, emit
from wire import Response, envelope, request

uploads = limits.Slots(limits.UPLOADS, limits.UPLOADS)
searches = limits.Slots(limits.SEARCHES // 2, limits.SEARCHES, limits.SEARCH_PAUSE)
waits = limits.Slots(limits.WAITS // 2, limits.WAITS)
ending = threading.Event()  # this process is to end, and no request waits any more
BUSY = f"{limits.UPLOADS} files are being uploaded at the moment; try again"


def authorize(caller: Row, role: str, scope: str) -> None:
    """Raise `Forbidden` unless the caller has at least this role, and a key of at least this scope."""
    permit(caller, role)
    if SCOPES.index(caller["scope"]) < SCOPES.index(scope):
        raise Forbidden(f"your key's scope is {caller['scope']}; this takes a key of scope {scope}")


@dataclass(frozen=True)
class Declaration:
    """What a view declares: what it takes and answers, and what the document says about it.

    A view that writes runs in one transaction, which is its first argument; the deliveries that the
    transaction leaves are sent after the commit.
    """

    takes: Schema = schemas.NOTHING  # of the query for GET and DELETE, else of the body: the view's arguments
    # The schema of the answer's data, or the content type of an answer that is no JSON object; None for a
    # file of a page, which the document does not list.
    gives: Any = None
    _: KW_ONLY
    # "json" (or the query); "file" for a form with a file; "nothing" for a page: any query or form is
    # ignored, and errors are pages.
    reads: str = "json"
    status: int = 200  # of a success
    role: str | None = "client"  # the least role that may call it; None: no key is needed
    raises: tuple[type[ApiError], ...] = ()  # beside the errors that every operation may answer
    headers: tuple[str, ...] = ()  # of a success
    also: dict[int, str] = field(default_factory=dict)  # other statuses of a success, with descriptions
    after_delivery: Callable[[Any], Row] | None = None  # makes the answer's data of what the view returns
    scope: str = "write"  # the least scope of a key with which it writes
    preconditions: tuple[str, ...] = ()  # of the headers If-Match and If-None-Match; others are refused
    of_session: bool = False  # a key of any scope will do: the cookie of a session

    @property
    def is_repeatable(self) -> bool:
        """Whether it takes an `Idempotency-Key`: it creates, and its answer may be stored."""
        return self.status == 201 and not getattr(self.gives, "secret", False)

    def __call__(self, view: Callable) -> Callable:
        @wraps(view)
        def answer(**ids: str) -> Any:
            current = request()
            is_read = current.method in ("GET", "HEAD")
            if self.role is not None:
                authorize(current.caller, self.role, "read" if is_read or self.of_session else self.scope)
            with db.limit(limits.QUERY_SECONDS), db.viewed_by(current.viewer if self.role else None):
                ids = {name: Task.id_of(id) if isinstance(id, int) else id for name, id in ids.items()}
                if is_read:
                    # Where no key is needed, parameters are ignored, as those of monitors.
                    query = read_query(self.takes, current.query_string if self.role else b"")
                    data = view(**ids, **query)
            if not is_read:
                with slot(uploads, Unavailable, BUSY) if self.reads == "file" else contextlib.nullcontext():
                    data = perform(view, ids | read_arguments(self), self)
            if self.after_delivery:
                data = self.after_delivery(data)
            return data if callable(data) else success(data, current.success_status or self.status)

        answer.declaration = self  # type: ignore[attr-defined]
        return answer


operation = Declaration  # above a view


@contextlib.contextmanager
def slot(slots: limits.Slots, refusal: type[ApiError], *words: Any) -> Iterator[None]:
    """Run the body in a slot of the caller's. Raises the refusal, made with these words, if none is free."""
    member_id = request().caller["id"]
    if not slots.acquire(member_id):
        raise refusal(*words)
    try:
        yield
    finally:
        slots.release(member_id)


def search(read: Callable[[], Row]) -> Row:
    """Return what `read` returns, which looks through all texts or all activity. Raises `TooMany`."""
    with slot(searches, TooMany, limits.WAIT_AGAIN), db.limit(limits.SEARCH_SECONDS):
        return read()


def awaited(
    seconds: int, read: Callable[[], Row], has_some: Callable[[Row], Any], role: str = "client"
) -> Row:
    """What `read` returns as soon as there is some, or after so many seconds. Raises `TooMany`.

    It reads again every `WAIT_STEP` seconds, since other processes write too and a time may come: each time
    as the caller, who must still have this role.
    """
    current, begun_at = request(), time.monotonic()
    data = read()
    if has_some(data) or not seconds:
        return data
    with slot(waits, TooMany, limits.WAIT_AGAIN):
        while (left := begun_at + seconds - time.monotonic()) > 0 and not current.is_abandoned():
            ending.wait(min(left, limits.WAIT_STEP))
            current.waited = time.monotonic() - begun_at
            authorize(current.authenticate(), role, "read")  # the key or the role may have changed
            with db.limit(limits.QUERY_SECONDS), db.viewed_by(current.viewer):
                data = read()
            if ending.is_set() or has_some(data):
                break
    return data


def read_arguments(declaration: Declaration) -> Row:
    """What a request that writes holds for its view, checked.

    Raises as `Request`'s readers do, and `ValidationError`.
    """
    current, takes = request(), declaration.takes
    if declaration.reads == "nothing":
        return {}
    for name, key in (("If-Match", "HTTP_IF_MATCH"), ("If-None-Match", "HTTP_IF_NONE_MATCH")):
        if key in current.environ and name not in declaration.preconditions:
            raise Invalid((name, "is not accepted here"))
    body = current.get_upload() if declaration.reads == "file" else current.get_json()
    if current.method == "DELETE":
        if body:
            check(schemas.NOTHING, body)
        return read_query(takes, current.query_string)
    if current.query_string:
        read_query(schemas.NOTHING, current.query_string)
    return check(takes, body) if body or takes is not schemas.NOTHING else {}


@lru_cache(maxsize=1024)
def read_query(takes: Schema, query: bytes) -> Row:
    """What a query string holds for a view, checked; read once, since clients repeat their queries."""
    return check(takes, request().args) if query or takes is not schemas.NOTHING else {}


def check(schema: Schema, fields: Row | MultiDict) -> Row:
    """What the schema loads from the fields. Raises `ValidationError`, also for a repeated field."""
    if not isinstance(fields, MultiDict):
        return schema.load(fields)
    problems: Row = {name: ["is repeated"] for name, values in fields.lists() if len(values) > 1}
    try:
        loaded = schema.load(fields.to_dict())
    except ValidationError as error:
        raise ValidationError(error.messages_dict | problems) from error
    if problems:
        raise ValidationError(problems)
    return loaded


def perform(view: Callable, arguments: Row, declaration: Declaration) -> Any:
    """Run a view that writes in its transaction, and send the deliveries that the transaction leaves."""
    current, role = request(), declaration.role
    repeatable = idempotency(declaration, arguments)
    with write(current.caller, current.request_id, first=current.method == "DELETE") as transaction:
        if role is not None:  # the key or the role may have changed while the body arrived
            transaction.actor = current.authenticate()
            authorize(transaction.actor, role, "read" if declaration.of_session else declaration.scope)
            if current.viewer and (unseen := unseen_by(current.viewer, arguments)):
                arguments, repeatable = arguments | dict.fromkeys(unseen, "unseen"), None
        run = partial(view, transaction, **arguments)
        data = run_once(transaction, *repeatable, declaration.status, run) if repeatable else run()
        for event, task in transaction.also:
            emit(transaction, event, {"task": task})
    if transaction.deliveries or transaction.left_to_sweeper:
        counts = deliver(transaction)
        current.success_headers["x-webhook-deliveries"] = "; ".join(f"{k}={n}" for k, n in counts.items())
    return data


def unseen_by(viewer: Viewer, arguments: Row) -> list[str]:
    """Return which arguments are ids of what the viewer does not see; the view must not find it either."""
    ids = {name: arguments.get(name) for name in ("id", "comment_id", "member_id") if arguments.get(name)}
    with db.viewed_by(viewer):
        seen = {row["id"] for row in NAMED.all(ids=[*ids.values()])}
    return [name for name, id in ids.items() if id not in seen]


def idempotency(declaration: Declaration, arguments: Row) -> tuple[str, str] | None:
    """The `Idempotency-Key` of a request that creates, with a digest of the request; None without one.

    Raises `Invalid` where the answer may not be stored.
    """
    key = request().environ.get("HTTP_IDEMPOTENCY_KEY")
    if key is None or declaration.status != 201:
        return None
    if not declaration.is_repeatable:
        raise Invalid(
            ("Idempotency-Key", "is not accepted here: the answer holds a secret, which is not stored")
        )
    if not re.fullmatch(schemas.IDEMPOTENCY_KEY, key):
        raise Invalid(("Idempotency-Key", "must be 1 to 255 visible ASCII characters"))
    return key, digest(f"{request().path} {_ordered(arguments)!r}")


def _ordered(value: Any) -> Any:
    """The value in a fixed order, with digests in place of files."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, dict):
        return sorted((name, _ordered(inner)) for name, inner in value.items())
    return value


def run_once(
    transaction: Transaction, key: str, fingerprint: str, status: int, run: Callable[[], Row]
) -> Row:
    """Run the view and store its answer; or, where an answer is stored, return that. Raises `KeyReused`."""
    current = request()
    if stored := StoredAnswer.find(transaction, key, fingerprint):
        current.success_status = stored["status"]
        current.success_headers = stored["headers"] | {"Idempotent-Replayed": "true"}
        return stored["data"]
    data = run()
    StoredAnswer.keep(transaction, key, fingerprint, status, current.success_headers, data)
    return data


def success(data: Row, status: int) -> Response:
    content = envelope(request().request_id, {"success": True, "data": data})
    return Response(content, status, request().success_headers)


def failure(error: ApiError) -> Response:
    """The API's response to a request that raised this error."""
    content: Row = {"code": error.code, "message": str(error)}
    if first := error.details[: schemas.MAX_DETAILS]:
        content["details"] = [{"field": field, "message": message} for field, message in first]
    content = {"success": False, "error": content}
    return Response(envelope(request().request_id, content), error.status, error.headers)
