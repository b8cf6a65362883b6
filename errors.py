"""The errors that a request is answered with: status, code, and what the document says of each."""

from collections.abc import Mapping, Sequence
from typing import Any

from limits import QUERY_SECONDS, READ_SECONDS, SEARCH_SECONDS, UPLOAD_SECONDS, UPLOADS


class ApiError(Exception):
    """An error that a request is answered with; a subclass says its status, code and reason.

    The OpenAPI document has the `reason` of each direct subclass, under its `title` or its code.
    """

    status, code, title = 500, "internal_error", ""
    reason = "A bug; the log has it under the answer's `request_id`."
    details: Sequence[tuple[str, str]] = ()  # each wrong field, with what is wrong
    headers: Mapping[str, str] = {}


class Unavailable(ApiError):
    """The service cannot do this now; `retry_after` is in seconds, or None where waiting does not help."""

    status, code = 503, "unavailable"
    reason = (
        f"The database is locked, full, read-only, damaged or was moved, a read took {QUERY_SECONDS:.0f} s "
        f"(a search {SEARCH_SECONDS:.0f}), or {UPLOADS} files are being uploaded; see `Retry-After`."
    )

    def __init__(self, message: str, *, retry_after: int | None = 5):
        super().__init__(message)
        self.headers = {"Retry-After": str(retry_after)} if retry_after else {}


class BadBody(ApiError):
    status, code, title = 400, "invalid_json", "BadRequest"
    reason = "No JSON object in UTF-8, a repeated key, NaN; or no valid form."


class TooLarge(ApiError):
    status, code = 413, "payload_too_large"
    reason = "The body is over 1 MiB, or the file over 10 MiB."


class TooSlow(ApiError):
    status, code = 408, "request_timeout"
    reason = f"The body took over {READ_SECONDS:.0f} s, or a file over {UPLOAD_SECONDS / 60:.0f} minutes."


class Unsupported(ApiError):
    status, code = 415, "unsupported_media_type"
    reason = "The body is of another type than the documented one."


class Unauthorized(ApiError):
    status, code = 401, "unauthorized"
    reason = "There is no API key and no session, or not a valid one."
    headers = {"WWW-Authenticate": "Bearer"}


class NotFound(ApiError):
    status, code = 404, "not_found"
    reason = "There is no such path or object."

    def __init__(self, noun: str):
        super().__init__(f"no such {noun}")


class Invalid(ApiError):
    status, code = 422, "validation_error"
    reason = "`error.details` lists every field, parameter or header that is wrong."

    def __init__(self, *details: tuple[str, str]):
        super().__init__("; ".join(f"{field}: {message}" for field, message in details)[:1000])
        self.details = details


class Forbidden(ApiError):
    status, code = 403, "forbidden"
    reason = "The role or the key's scope does not allow it; the message says which would."


class Conflict(ApiError):
    status, code = 409, "conflict"
    reason = "The state does not allow it."


class Gone(ApiError):
    status, code = 410, "gone"
    reason = (
        "The link was used, replaced or revoked, or has expired; or a cursor holds no longer: begin again."
    )


class KeyReused(ApiError):
    status, code = 422, "idempotency_key_reused"
    reason = "The key came with another path or body before."


class PreconditionFailed(ApiError):
    status, code = 412, "precondition_failed"
    reason = "`If-Match` names another version, or `If-None-Match` refuses a task that exists."


def not_found(noun: str) -> Any:
    """Raise `NotFound`. It is an expression, for use after `or`."""
    raise NotFound(noun)


class TooMany(ApiError):
    status, code = 429, "rate_limited"
    reason = "Too many requests of a member; see `Retry-After` and `RateLimit`."

    def __init__(self, seconds: int):
        super().__init__(f"too many requests; try again in {seconds} s")
        self.headers = {"Retry-After": str(seconds)}
