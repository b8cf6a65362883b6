"""The errors of the API: the status and code of each, and its reason in the OpenAPI document."""

from collections.abc import Mapping, Sequence
from typing import Any

from limits import QUERY_SECONDS, READ_SECONDS, SEARCH_SECONDS, UPLOAD_SECONDS, UPLOADS


class ApiError(Exception):
    """An error that a request is answered with; each subclass has its status, code and reason.

    The OpenAPI document lists the `reason` of each direct subclass under its `title` or its code.
    """

    status, code, title = 500, "internal_error", ""
    reason = "A bug in the service. Its log has details under the `request_id` of the response."
    details: Sequence[tuple[str, str]] = ()  # pairs of a field and what is wrong with it
    headers: Mapping[str, str] = {}


class Unavailable(ApiError):
    """The service cannot do this now; `retry_after` is in seconds, or None if waiting does not help."""

    status, code = 503, "unavailable"
    reason = (
        "The database is locked, full, read-only, damaged or was moved; a read took over "
        f"{QUERY_SECONDS:.0f} s (a search {SEARCH_SECONDS:.0f}); or {UPLOADS} files are being uploaded. "
        "See `Retry-After`."
    )

    def __init__(self, message: str, *, retry_after: int | None = 5):
        super().__init__(message)
        self.headers = {"Retry-After": str(retry_after)} if retry_after else {}


class BadBody(ApiError):
    status, code, title = 400, "invalid_json", "BadRequest"
    reason = (
        "The body is not a JSON object in UTF-8, repeats a key or contains NaN; or it is not a valid form."
    )


class TooLarge(ApiError):
    status, code = 413, "payload_too_large"
    reason = "The body is over 1 MiB, or the file over 10 MiB."


class TooSlow(ApiError):
    status, code = 408, "request_timeout"
    reason = f"The body took over {READ_SECONDS:.0f} s, or a file over {UPLOAD_SECONDS / 60:.0f} minutes."


class Unsupported(ApiError):
    status, code = 415, "unsupported_media_type"
    reason = "The Content-Type is not the documented one."


class Unauthorized(ApiError):
    status, code = 401, "unauthorized"
    reason = "The API key or session is missing or not valid."
    headers = {"WWW-Authenticate": "Bearer"}


class NotFound(ApiError):
    status, code = 404, "not_found"
    reason = "The path or object does not exist."

    def __init__(self, noun: str):
        super().__init__(f"no such {noun}")


class Invalid(ApiError):
    status, code = 422, "validation_error"
    reason = "`error.details` lists every field, parameter or header that is not valid."

    def __init__(self, *details: tuple[str, str]):
        super().__init__("; ".join(f"{field}: {message}" for field, message in details)[:1000])
        self.details = details


class Forbidden(ApiError):
    status, code = 403, "forbidden"
    reason = "The caller's role or the key's scope does not allow it; the message says what is needed."


class Conflict(ApiError):
    status, code = 409, "conflict"
    reason = "The current state does not allow it."


class Gone(ApiError):
    status, code = 410, "gone"
    reason = "The link was used, replaced or revoked, or has expired; or the cursor is too old: begin again."


class KeyReused(ApiError):
    status, code = 422, "idempotency_key_reused"
    reason = "The key was used with another path or body."


class PreconditionFailed(ApiError):
    status, code = 412, "precondition_failed"
    reason = "The task does not have the version of `If-Match`, or it exists although `If-None-Match` is `*`."


class TooMany(ApiError):
    status, code = 429, "rate_limited"
    reason = "The member sends too many requests; see `Retry-After` and `RateLimit`."

    def __init__(self, seconds: int):
        super().__init__(f"too many requests; try again in {seconds} s")
        self.headers = {"Retry-After": str(seconds)}


def not_found(noun: str) -> Any:
    """Raise `NotFound`; a function, so that it can follow `or`."""
    raise NotFound(noun)


def either(*words: str) -> str:
    """Return words as a choice: a, b or c."""
    return f"{', '.join(words[:-1])} or {words[-1]}".removeprefix(" or ")
