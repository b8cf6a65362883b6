"""The schemas of the API's requests and responses, field by field. They run no query, and know no Flask."""

import contextlib
import re
import unicodedata
from datetime import UTC, datetime
from functools import partial
from types import UnionType
from typing import Any

import email_validator
from marshmallow import EXCLUDE, Schema, ValidationError, fields, validate, validates_schema
from peewee import ForeignKeyField, IntegerField

import limits
import members
import models
import outbox
import times
from database import ChoiceField, EncodedJSON, EncodedJSONField, to_json
from errors import either
from lists import SORTS
from strictjson import MAX_DEPTH, MAX_SAFE_INTEGER, TOO_DEEP, canonical, is_deeper, text_problem

API = "/api/v1"  # the paths of the JSON API begin with it
API_VERSION = "1.1"  # from the specification; additions to the API do not change it

# A closed network has its own domains, as in ana@intranet and ana@corp.local.
email_validator.SPECIAL_USE_DOMAIN_NAMES.clear()
email_validator.GLOBALLY_DELIVERABLE = email_validator.CHECK_DELIVERABILITY = False

MAX_METADATA = 64 * 1024  # bytes, serialised
MAX_TEXT = 50_000
MAX_TITLE = 500
IDEMPOTENCY_KEY = "[!-~]{1,255}"  # visible ASCII characters
MAX_DETAILS = 50  # problems that one response lists, so that it stays small


# Fields ---------------------------------------------------------------------------------------

MESSAGES: dict[str, Any] = {"required": "is required", "null": "must not be null"}
# A field's `described` adds to the OpenAPI document what its type and validators do not say.


def doc(text: str) -> dict[str, Any]:
    """Return the option of a field that describes it in the OpenAPI document."""
    return {"metadata": {"description": text}}


CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# One line that is not blank, for the document. Blanks around it, of any kind, are trimmed.
ONE_LINE = r"^\s*[^\s\x00-\x1f\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f])?\s*$"
SEPARATORS = re.compile(r"[\u2028\u2029]+")  # of lines and paragraphs; nobody sees them when pasting
BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"  # fillers of Hangul, and Braille without a dot
DIRECTION_CONTROLS = re.compile(r"[\u202a-\u202e\u2066-\u2069]")


def is_blank(text: str) -> bool:
    """Return whether nothing of the text is visible: only blanks, fillers, lone marks, control codes."""
    kinds = (unicodedata.category(c) for c in text if c not in BLANK_LETTERS)
    return all(kind[0] in "MZ" or kind in ("Cc", "Cf", "Cs") for kind in kinds)  # Cn may be a new emoji


class Text(fields.String):
    """A string of at most `maximum` characters; of one line (trimmed, not blank) unless `lines`."""

    default_error_messages = {**MESSAGES, "invalid": "must be a string"}

    def __init__(self, maximum: int = 200, *, lines: bool = False, blank: bool = False, **options: Any):
        self.lines, self.blank = lines, blank
        pattern = r"\S" if lines else ONE_LINE
        self.described: dict[str, Any] = {} if blank else {"minLength": 1, "pattern": pattern}
        limit = validate.Length(max=maximum, error="must be at most {max} characters long")
        super().__init__(validate=limit, **options)

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> str:
        text = super()._deserialize(value, *arguments, **options) or ""
        if not self.lines:
            text = SEPARATORS.sub(" ", text).strip()
            if CONTROL.search(text):
                raise ValidationError("must not contain control characters")
        if not self.blank and is_blank(text):
            raise ValidationError("must not be blank")
        if problem := text_problem(text):
            raise ValidationError(problem)
        return text


class Name(Text):
    """The name of a person, thing or file, which has to look as it is written."""

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> str:
        name = super()._deserialize(value, *arguments, **options)
        if DIRECTION_CONTROLS.search(name):
            raise ValidationError("must not contain characters that change the direction of text")
        return name


class NonEmpty(fields.String):
    """A string, trimmed, that is not empty."""

    described = {"minLength": 1, "pattern": r"\S"}
    default_error_messages = {**MESSAGES, "invalid": "must be a string"}

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> str:
        text = (super()._deserialize(value, *arguments, **options) or "").strip()
        if not text:
            raise ValidationError("must not be empty")
        if problem := text_problem(text):
            raise ValidationError(problem)
        return text


def matching(pattern: str, what: str, **options: Any) -> fields.String:
    """Return the field of a text that matches the pattern as a whole; `what` says what it must be."""
    matches = validate.Regexp(rf"(?:{pattern})\Z", error=f"must be {what}")
    return fields.String(validate=matches, error_messages=Text.default_error_messages, **options)


Description = partial(Text, MAX_TEXT, lines=True, blank=True, allow_none=True)


class Choice(fields.String):
    default_error_messages = {**MESSAGES, "invalid": "must be a string"}

    def __init__(self, choices: Any, hint: str = "", **options: Any):
        self.choices = tuple(choices)
        one_of = validate.OneOf(choices, error=f"must be one of {{choices}}{hint}")
        super().__init__(validate=one_of, **options)


class Id(fields.String):
    """A hyphenated UUID, loaded in lower case, or one of `words`."""

    default_error_messages = {**MESSAGES, "invalid": "must be a UUID"}
    PATTERN = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

    def __init__(self, *words: str, **options: Any):
        self.words = words
        uuid = self.PATTERN.pattern.replace("a-f", "a-fA-F")
        self.described = {"pattern": f"^({'|'.join([*words, uuid])})$"} if words else {"format": "uuid"}
        if words:
            options["error_messages"] = {"invalid": f"must be {either('a UUID', *words)}"}
        super().__init__(**options)

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> str:
        text = super()._deserialize(value, *arguments, **options) or ""
        if text in self.words:
            return text
        if not (text.isascii() and self.PATTERN.fullmatch(text.lower())):
            raise self.make_error("invalid")
        return text.lower()


class TaskReference(fields.Field):
    """The number or the id of a task."""

    default_error_messages = {**MESSAGES, "invalid": "must be a task's number or id"}
    NUMBER = "[1-9][0-9]{0,15}"

    @property
    def described(self) -> dict[str, Any]:
        number = {"type": "integer", "minimum": 1, "maximum": MAX_SAFE_INTEGER}
        null = [{"type": "null"}] if self.allow_none else []
        return {"oneOf": [number, {"type": "string", "format": "uuid"}, *null]}

    def _deserialize(self, value: Any, *_: Any, **__: Any) -> int | str:
        is_number = type(value) is int and 1 <= value <= MAX_SAFE_INTEGER
        return value if is_number else Id(error_messages=self.error_messages).deserialize(value)


class Instant(fields.String):
    """A time (RFC 3339; UTC if it has no offset), loaded in wire form.

    The seconds and the colon of an offset are optional, since Java and Jira leave them out. A date alone is
    the beginning of that day in the workspace's time zone, or with `ends_day` its last millisecond.
    """

    default_error_messages = {
        **MESSAGES,
        "invalid": "must be a date and time like 2026-11-20T23:05:01Z, or a date like 2026-11-20",
        "blank": "must have a + before its offset; in a query, write it as %2B",
        "range": "must be between the years 1970 and 9999",
    }
    PATTERN = re.compile(
        r"([0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01]))"
        r"(?:[Tt]((?:[01][0-9]|2[0-3]):[0-5][0-9])(?:(:[0-5][0-9])(?:\.([0-9]{1,50}))?)?"
        r"([Zz]|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])?)?"
    )
    YEARS = "(?:19[7-9][0-9]|[2-9][0-9]{3})"

    def __init__(self, *, ends_day: bool = False, **options: Any):
        self.ends_day = ends_day
        end = "last millisecond" if ends_day else "beginning"
        self.described = {
            "pattern": f"^{self.PATTERN.pattern}$".replace("[0-9]{4}", self.YEARS),
            "description": "RFC 3339, in UTC if there is no offset. "
            f"A date alone is the {end} of that day in the workspace's time zone.",
            "examples": ["2026-12-01T17:00:00Z"],
        }
        super().__init__(**options)

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> str:
        text = super()._deserialize(value, *arguments, **options) or ""
        match = self.PATTERN.fullmatch(text)
        if not match:
            raise self.make_error("blank" if self.PATTERN.fullmatch(text.replace(" ", "+")) else "invalid")
        date, clock, seconds, fraction, offset = match.groups()
        milliseconds = (fraction or "")[:3].ljust(3, "0")
        zone = offset if offset and offset not in "Zz" else "+00:00"
        day = "23:59:59.999" if self.ends_day else "00:00:00"
        try:
            time = f"{clock}{seconds or ':00'}.{milliseconds}{zone}" if clock else day
            moment = datetime.fromisoformat(f"{date}T{time}")
        except ValueError as error:
            raise self.make_error("invalid") from error
        if not clock:
            # If clocks are set back at midnight, an hour comes twice: the day ends with the second one.
            moment = moment.replace(tzinfo=times.zone, fold=self.ends_day)
        try:
            moment = moment.astimezone(UTC)
        except OverflowError as error:
            raise self.make_error("range") from error
        if moment.year < 1970:
            raise self.make_error("range")
        return times.instant(moment)


class ListOf(fields.List):
    """A list whose length is checked before its items, since it may be very long."""

    def __init__(self, item: fields.Field, what: str, length: Any = None, **options: Any):
        messages = {**MESSAGES, "invalid": f"must be a list of {what}"}
        super().__init__(item, validate=length, error_messages=messages, **options)

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> list[Any]:
        if isinstance(value, list):
            self._validate(value)
        return super()._deserialize(value, *arguments, **options)


class Rule(Text):
    """The rule by which a task repeats, loaded in upper case."""

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> str:
        rule = super()._deserialize(value, *arguments, **options).upper()
        if problem := models.Task.rules.problem(rule):
            raise ValidationError(problem)
        return rule


class JSONObject(fields.Dict):
    """A free-form JSON object, loaded as canonical text (`EncodedJSON`). Null is the empty object."""

    default_error_messages = {**MESSAGES, "invalid": "must be a JSON object"}

    def __init__(self, maximum: int, **options: Any):
        self.maximum = maximum
        description = f"At most {maximum // 1024} KiB as JSON, {MAX_DEPTH} levels deep. Null is {{}}. "
        description += "An update replaces all of it."
        self.described = {"type": ["object", "null"], "description": description}
        super().__init__(**options)

    def deserialize(self, value: Any, *arguments: Any, **options: Any) -> Any:
        return super().deserialize({} if value is None else value, *arguments, **options)

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> Any:
        document = super()._deserialize(value, *arguments, **options)
        if is_deeper(document, MAX_DEPTH):
            raise ValidationError(TOO_DEEP)
        too_long = f"must be at most {self.maximum // 1024} KiB long as JSON"
        with contextlib.suppress(TypeError):  # an integer of more than 64 bits
            # The canonical text takes longer to make, and may be shorter: -0.0 becomes 0.
            if len(to_json(document)) > 4 * self.maximum:
                raise ValidationError(too_long)
        text = canonical(document)
        if len(text.encode()) > self.maximum:
            raise ValidationError(too_long)
        return EncodedJSON(text)


class Email(Text):
    """An e-mail address, loaded in lower case. Whether it exists is not checked."""

    def __init__(self, **options: Any):
        super().__init__(254, **options)
        self.described = {"format": "idn-email"}

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> str:
        text = super()._deserialize(value, *arguments, **options)
        self._validate(text)  # the length: parsing a long address takes minutes
        try:
            checked = email_validator.validate_email(text)
        except email_validator.EmailNotValidError as error:
            raise ValidationError(f"must be an e-mail address: {error}") from error
        return checked.normalized.lower()


class QueryInteger(fields.Integer):
    """A whole number or its ASCII digits, as in a query or an environment variable."""

    default_error_messages = {**MESSAGES, "invalid": "must be a whole number from {least} to {most}"}

    def __init__(self, least: int, most: int, **options: Any):
        self.least, self.most = least, most
        limits = validate.Range(least, most)  # for the document; the text is checked below
        super().__init__(validate=limits, **options)

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> int:
        if re.fullmatch("[0-9]{1,16}", str(value)) and self.least <= int(value) <= self.most:
            return int(value)
        most = "2^53-1" if self.most == MAX_SAFE_INTEGER else self.most
        raise self.make_error("invalid", least=self.least, most=most)


class JSONInteger(QueryInteger):
    """A whole number in a JSON body: `1.0` is one, `true` and `"1"` are not."""

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> int:
        is_whole = type(value) in (int, float) and value % 1 == 0
        return super()._deserialize(int(value) if is_whole else None, *arguments, **options)


class JSONBoolean(fields.Boolean):
    """Exactly `true` or `false`, in a JSON body."""

    default_error_messages = {**MESSAGES, "invalid": "must be true or false"}

    def _deserialize(self, value: Any, *_: Any, **__: Any) -> bool:
        if not isinstance(value, bool):
            raise self.make_error("invalid")
        return value


# Bodies and queries ---------------------------------------------------------------------------


class Strict(Schema):
    """A schema that refuses other fields than its own, with a message that lists its own."""

    def __init__(self, *, when: str = "", more: str = "", **options: Any):
        """Make the schema; `when`, such as " on create", and `more` become parts of that message."""
        super().__init__(**options)
        names = [field.data_key or name for name, field in self.load_fields.items()]
        accepted = ", ".join(names) or "nothing"
        self.error_messages["unknown"] = f"is not accepted{when}; accepted: {accepted}{more}"
        self.error_messages["type"] = "must be an object"


class TaskInput(Strict):
    project_id = Id(required=True)
    milestone_id = Id(allow_none=True)
    title = Text(MAX_TITLE, required=True)
    description = Description()
    status = Choice(models.STATUSES)
    priority = Choice(models.PRIORITIES, allow_none=True)
    assignee_id = Id(allow_none=True)
    start_date = Instant(allow_none=True)
    due_date = Instant(ends_day=True, allow_none=True)
    labels = ListOf(
        Name(50, error_messages={"null": "must be a string"}),
        "labels",
        validate.Length(max=models.MAX_LABELS, error="must be at most {max} labels"),
        allow_none=True,
        **doc("The whole list. Case does not count: a label is spelled as it was first used."),
    )
    metadata = JSONObject(MAX_METADATA)
    repeat = Rule(100, allow_none=True, **doc("A part of RFC 5545's RRULE."))
    repeat_from = Choice(models.REPEAT_FROM, allow_none=True)
    external_id = Name(255, allow_none=True)
    blocked_by = ListOf(
        TaskReference(),
        "tasks' numbers or ids",
        validate.Length(max=models.MAX_BLOCKERS, error="must be at most {max} tasks"),
        allow_none=True,
        **doc("The whole list of tasks that block this one. Done tasks block nothing."),
    )

    CREATED = {"project_id": "019abf3e-5d7b-7c1e-9f1a-3d2b8f0c6a55", "title": "Draft the landing page"}
    EXAMPLE = {
        **CREATED,
        "status": "in_progress",
        "priority": "urgent",
        "due_date": "2026-12-01T17:00:00Z",
        "labels": ["Design"],
        "metadata": {"estimate": 3},
    }


class TaskDetailsInput(TaskInput):
    after = TaskReference(allow_none=True, **doc("The task before it; null: it is first."))
    before = TaskReference(allow_none=True, **doc("The task behind it; null: it is last."))

    @validates_schema
    def _one_place(self, data: dict, **_: Any) -> None:
        if {"after", "before"} <= data.keys():
            raise ValidationError("must not be combined with after", "before")


class Cursor(fields.String):
    """The `next_after` of an earlier page, loaded as the groups of `pattern`."""

    default_error_messages = {**MESSAGES, "invalid": "must be the next_after of an earlier page"}
    described = {"description": "The `next_after` of an earlier page."}

    def __init__(self, pattern: str):
        self.pattern = re.compile(pattern)
        super().__init__()

    def _deserialize(self, value: Any, *arguments: Any, **options: Any) -> Any:
        match = self.pattern.fullmatch(super()._deserialize(value, *arguments, **options) or "")
        if not match:
            raise self.make_error("invalid")
        return match.groups()


TIME_PATTERN = r"[0-9]{4}-[0-9-]{5}T[0-9:]{8}\.[0-9]{3}Z"
WAITING = f"The seconds to wait for a result. {limits.WAITS} requests may wait at once; others get a 429."
WAIT = QueryInteger(0, limits.WAIT_SECONDS, load_default=0, **doc(WAITING))


class PageQuery(Strict):
    limit = QueryInteger(1, 100, load_default=20)
    offset = QueryInteger(0, 2**31 - 1, load_default=0)


class TaskQuery(PageQuery):
    project_id = Id()
    milestone_id = Id()
    status = Choice((*models.STATUSES, "open"), **doc("`open`: all but done."))
    assignee_id = Id("me", "none")
    created_by = Id("me")
    external_id = Name(255)
    priority = Choice(models.PRIORITIES)
    due_before = Instant()
    due_since = Instant()
    created_since = Instant()
    updated_since = Instant()
    completed_since = Instant()
    ready = Choice(
        ["true"], **doc("In `todo`, not blocked, without a question; unassigned, or `assignee_id`'s.")
    )
    after = Cursor(f"({TIME_PATTERN})_({Id.PATTERN.pattern})(?:_({TIME_PATTERN}))?")
    q = Text(
        200,
        **doc(
            "Words that the title and description, or one comment, must all contain, in any "
            "order. Text in double quotes is found as it is written. Case and accents do not count. "
            "A number, as 8 or #8, also finds that task."
        ),
    )
    label = Name(50)
    archived = Choice(["false"])
    wait = WAIT
    sort = Choice([sort for sort in SORTS if sort])
    include = Choice(["comment_count"])

    @validates_schema
    def _follows_changes(self, data: dict, **_: Any) -> None:
        if "after" in data and (data.get("sort") != "updated_at" or data.get("offset")):
            raise ValidationError("needs sort=updated_at, without offset", "after")
        if data["wait"] and not data.keys() & {"after", "ready"}:
            raise ValidationError("needs ready=true or after", "wait")


class CommentInput(Strict):
    content = Text(MAX_TEXT, lines=True, required=True)
    question = JSONBoolean(**doc("Whether the task waits for an answer: the next comment of someone else."))

    EXAMPLE = {"content": "A first version is on the whiteboard."}


def each_once(values: list[Any]) -> None:
    """Raise `ValidationError` if a list names a project twice."""
    if len({str(value).lower() for value in values}) < len(values):
        raise ValidationError("must not name a project twice")


PROJECTS_SEEN = "The only projects that a client sees, with their contents; null for all, `[]` for none."


class MemberInput(Strict):
    email = Email(required=True)
    full_name = Name(required=True)
    role = Choice(members.ROLES, required=True)
    phone_number = Text(50, allow_none=True)
    mail = Choice(members.MAIL, **doc("How often the service mails unread notifications."))
    project_ids = ListOf(
        Id(),
        "projects' ids",
        [validate.Length(max=100, error="must be at most {max} projects"), each_once],
        allow_none=True,
        **doc(PROJECTS_SEEN),
    )

    EXAMPLE = {"email": "ana@example.com", "full_name": "Ana Lima", "role": "member"}


class KeyInput(Strict):
    name = Name(required=True)
    scope = Choice(members.SCOPES, allow_none=True)
    expires_at = Instant(allow_none=True)
    member_id = Id(allow_none=True)

    EXAMPLE = {"name": "CI", "scope": "read", "expires_at": "2027-12-01"}


class ProjectInput(Strict):
    name = Name(required=True)
    description = Description()
    status = Choice(models.PROJECT_STATUSES)
    owner_id = Id(allow_none=True)

    EXAMPLE = {"name": "Website", "description": "Everything at www.example.com"}


class ProjectUpdate(ProjectInput):
    owner_id = Id()  # unlike on create it must not be null: a project always has an owner


class DeliveryQuery(PageQuery):
    status = Choice(outbox.DELIVERY_STATUSES)
    webhook_id = Id()
    event = Choice(outbox.ALL_EVENTS)


NOTHING = Strict()
CREATE_TASK: TaskInput = TaskInput(exclude=["status"], when=" on create")
# The fields that PATCH of a task accepts, and those that only PATCH of its details accepts.
UPDATED_FIELDS = ("title", "status", "assignee_id", "metadata")
DETAIL_FIELDS = (
    *("project_id", "milestone_id", "description", "priority", "start_date", "due_date"),
    *("labels", "external_id", "blocked_by", "repeat", "repeat_from"),
)
MORE_FIELDS_HINT = "; PATCH /tasks/:id/details accepts more fields"
UPDATE_TASK = TaskInput(only=UPDATED_FIELDS, partial=True, when=" on update", more=MORE_FIELDS_HINT)
UPDATE_TASK_DETAILS = TaskDetailsInput(
    only=(*UPDATED_FIELDS, *DETAIL_FIELDS, "after", "before"), partial=True, when=" on update"
)
LIST_TASKS = TaskQuery()
LIST_COMMENTS = Strict.from_dict({"limit": QueryInteger(1, 500, load_default=500), "before": Id()})()
INVITE_MEMBER = MemberInput(exclude=["mail"])
CREATE_KEY = KeyInput()
CREATE_PROJECT = ProjectInput(exclude=["status"], when=" on create")
LIST_PROJECTS = Strict.from_dict({"status": Choice(models.PROJECT_STATUSES)})()
REVOKE = Strict.from_dict({"made": Choice(("true", "false"))})()
DELETE_PROJECT = Strict.from_dict({"force": Choice(("true", "false"))})()


def problems_of(error: ValidationError) -> list[tuple[str, str]]:
    """Return the error as pairs of a field, with dots before nested ones, and a message."""
    return list(_flatten(error.messages, ""))


def printable(name: Any) -> str:
    """Return a name that the caller sent, shortened and in ASCII."""
    return str(name).encode("ascii", "backslashreplace").decode()[:100]


def _flatten(messages: Any, path: str) -> Any:
    if isinstance(messages, dict):
        for name, inner in messages.items():
            field = "" if name == "_schema" else printable(name)
            yield from _flatten(inner, f"{path}.{field}".strip("."))
    else:
        yield from ((path or "body", message) for message in messages)


# Responses ------------------------------------------------------------------------------------


class Shown(Schema):
    """The data of a response, whose keys are required. It only documents: rows already have this form."""

    class Meta:
        unknown = EXCLUDE  # in the document: a later version may add keys

    secret = False  # whether it contains a secret, which is not stored, so it is shown only once
    optional: tuple[str, ...] = ()  # the keys that not every response has

    def on_bind_field(self, field_name: str, field_obj: fields.Field) -> None:
        field_obj.required = field_name not in self.optional


class Moment(fields.String):
    """A time in a response: UTC, with milliseconds."""

    described = {"format": "date-time"}


def field_of(kind: Any) -> fields.Field:
    """Return the field that shows a value of this type, such as `int`, `Moment | None` or `[TaskShown]`.

    `kind` may also be a type with its description, or a field, which is returned.
    """
    if isinstance(kind, fields.Field):
        return kind
    options: dict[str, Any] = {}
    if isinstance(kind, tuple):
        kind, options = kind[0], doc(kind[1])
    if isinstance(kind, UnionType):
        kind, options["allow_none"] = kind.__args__[0], True
    if isinstance(kind, list):
        return fields.List(field_of(*kind), **options)
    if issubclass(kind, Schema):
        return fields.Nested(kind, **options)
    kinds: dict[type, Any] = {**Schema.TYPE_MAPPING, dict: fields.Dict}
    return kinds.get(kind, kind)(**options)


def field_of_column(column: Any) -> fields.Field:
    """Return the field of a response that shows this column of a table."""
    if isinstance(column, ChoiceField):
        return Choice(column.choices, allow_none=column.null)
    kind: Any = Moment if column.column_name.endswith(("_at", "_date", "_until")) else str
    if column.name == "id" or isinstance(column, ForeignKeyField):
        kind = Id
    elif isinstance(column, IntegerField):
        kind = int
    elif isinstance(column, EncodedJSONField):
        kind = dict
    return field_of(kind | None if column.null else kind)


def response_schema(
    title: str, /, *, base: Any = Shown, secret: Any = False, optional: Any = (), **declared: Any
) -> Any:
    """Return the schema of a response: its name in the OpenAPI document, and its fields (`field_of`)."""
    schema = base.from_dict({name: field_of(kind) for name, kind in declared.items()}, name=title)
    schema.secret, schema.optional = secret, optional
    return schema


def shown(model: Any, columns: str, title: str = "", /, *, base: Any = Shown, **others: Any) -> Any:
    """Return the schema of a response with these columns of a table, separated by blanks, and other fields.

    A field whose name is in `columns` replaces the column's field, at its position.
    """
    declared = {
        name: others.pop(name) if name in others else field_of_column(model._meta.columns[name])
        for name in columns.split()
    }
    return response_schema(title or model.__name__, base=base, **declared, **others)


ProfileShown = shown(members.Member, "id full_name email role", "Profile")
ProgressShown = response_schema("Progress", total=int, done=int)
BlockingShown = shown(models.Task, "id number title", "BlockingTask")
TaskShown = shown(
    models.Task,
    " ".join(column.column_name for column in models.Task.shown_columns()[:-1]),
    labels=[str],
    checks=(ProgressShown | None, "The checkboxes of the description."),
    question_id=(Id | None, "The comment that needs an answer."),
    blocked_by=[BlockingShown],
)
ListedTaskShown = response_schema(
    "ListedTask",
    base=TaskShown,
    optional=("comment_count",),
    comment_count=(int, "Only with `include=comment_count`."),
)
ProjectOfTaskShown = shown(models.Project, "id name status owner_id", "ProjectOfTask")
MilestoneOfTaskShown = shown(models.Milestone, "id title due_date", "MilestoneOfTask")
ATTACHMENT_COLUMNS = "id task_id filename content_type size created_by created_at"
AttachmentShown = shown(models.Attachment, ATTACHMENT_COLUMNS, task_id=Id)
TaskDetailShown = response_schema(
    "TaskDetail",
    base=TaskShown,
    comment_count=int,
    next_number=(int | None, "The task that followed it."),
    done_blockers=[BlockingShown],
    blocks=[BlockingShown],
    attachments=[AttachmentShown],
    project=ProjectOfTaskShown,
    milestone=MilestoneOfTaskShown | None,
    assignee=ProfileShown | None,
    creator=ProfileShown,
)
PaginationShown = response_schema(
    "Pagination", total=int, total_exact=bool, limit=int, offset=int, has_more=bool, next_offset=int | None
)
TaskPaginationShown = response_schema(
    "TaskPagination",
    base=PaginationShown,
    next_after=(str | None, "With `sort=updated_at`: the `after` of the next page, also at a later time."),
)
VIA = "The name of the API key with which it was made; null if it was made on the page."
CommentShown = shown(
    models.Comment,
    "id task_id author_id author content mentions created_at edited_at via",
    author=ProfileShown,
    mentions=([Id], "The mentioned members, as by `@Ana Lima` or `@Ana`."),
    via=(str | None, VIA),
)
MeetingShown = shown(
    models.Meeting,
    "id title description location project_id starts_at ends_at organizer participants when"
    " created_at updated_at",
    organizer=ProfileShown,
    participants=[ProfileShown],
    when=Choice(("upcoming", "past")),
)
MemberShown = shown(
    members.Member,
    "id full_name email role phone_number kind status joined_at created_at mail project_ids",
    project_ids=fields.List(Id(), allow_none=True, **doc(PROJECTS_SEEN)),
    kind=Choice(("team", "client")),
    status=Choice(("active", "invited")),
)
LINK_FIELDS: dict[str, Any] = {"enrollment_link": str, "expires_at": Moment}
InvitationShown = response_schema("Invitation", secret=True, member=MemberShown, **LINK_FIELDS)
# The link is for an invited member whose address was changed.
ChangedMemberShown = response_schema(
    "ChangedMember", base=MemberShown, optional=tuple(LINK_FIELDS), **LINK_FIELDS
)
InviteeShown = response_schema(
    "Invitee", workspace_name=str, full_name=str, email=str, role=Choice(members.ROLES), expires_at=Moment
)
EnrolledShown = response_schema("Enrolled", secret=True, member=MemberShown, api_key=str)
KeyShown = shown(
    members.ApiKey,
    "id name scope is_session prefix member creator made_with created_at expires_at last_used_at revoked_at",
    "Key",
    is_session=(bool, "Whether it is a session, whose keys may outlive it."),
    made_with=(Id | None, "The key or session with which it or its link was made."),
    member=ProfileShown,
    creator=ProfileShown | None,
)
NewKeyShown = response_schema("NewKey", secret=True, key=KeyShown, api_key=str)
MeShown = response_schema("Me", member=MemberShown, key=KeyShown)
COUNT_FIELDS = {name: int for name in ("total", *models.STATUSES, "overdue")}
StatisticsShown = response_schema("Statistics", **COUNT_FIELDS, completion_rate=float)
ProjectShown = shown(
    models.Project,
    "id name description status owner stats created_at updated_at",
    owner=ProfileShown,
    stats=StatisticsShown,
)
ListedProjectShown = response_schema(
    "ListedProject",
    base=ProjectShown,
    description_cut=(bool, f"Whether this list shows only its first {models.MAX_LISTED} characters."),
)
WhiteboardSummaryShown = shown(
    models.Whiteboard, "id title project_id updated_at updated_by", "WhiteboardSummary"
)
DeletedShown = response_schema("Deleted", id=Id, deleted=bool)
RevokedShown = response_schema("Revoked", id=Id, revoked=bool)
UrgentTaskShown = response_schema(
    "UrgentTask", base=TaskShown, project_name=str, assignee_name=str | None, overdue=bool
)
CHANGES = (
    "The old and the new value of each changed field. A value of over "
    f"{members.MAX_CHANGE} bytes as JSON is replaced by `omitted_bytes`."
)
ActivityShown = shown(
    members.Activity,
    "id action entity entity_id title actor changes created_at via",
    action=Choice(("created", "updated", "moved")),
    entity_id=Id,
    actor=ProfileShown,
    changes=(dict, CHANGES),
    via=(str | None, VIA),
)
HistoryPaginationShown = response_schema("HistoryPagination", limit=int, has_more=bool, next_before=Id | None)
CallerShown = response_schema("Caller", base=ProfileShown, scope=Choice(members.SCOPES))
SystemShown = response_schema(
    "System", current_time=Moment, ai_instructions=str, workspace_name=str, caller=CallerShown
)
ContextShown = response_schema(
    "Context",
    projects=[ListedProjectShown],
    members=[MemberShown],
    urgent_tasks=[UrgentTaskShown],
    recent_activity=[ActivityShown],
    whiteboards=[WhiteboardSummaryShown],
    system=SystemShown,
)
WaitingShown = response_schema("Waiting", pending=int, failing_endpoints=int)
MailShown = response_schema("Mail", is_sent=bool, unreached=int)
ChecksShown = response_schema(
    "Checks",
    database=str,
    writes_refused_since=Moment | None,  # as far as this worker has seen
    webhooks=WaitingShown,
    mail=MailShown,
)
HealthShown = response_schema(
    "Health",
    optional=("version", "uptime_seconds", "checks"),  # only for callers with a key
    status=str,
    version=str,
    uptime_seconds=int,
    checks=ChecksShown,
)
ListedEventShown = response_schema(
    "ListedEvent",
    id=str,
    event=Choice(outbox.ALL_EVENTS),
    timestamp=Moment,
    data=dict,
    actor=ProfileShown | None,  # null if time caused it, as for a due date
    request_id=str,
)
TaskListShown = response_schema("TaskList", tasks=[ListedTaskShown], pagination=TaskPaginationShown)
CommentListShown = response_schema("CommentList", comments=[CommentShown], pagination=HistoryPaginationShown)
MeetingListShown = response_schema("MeetingList", meetings=[MeetingShown])
MemberListShown = response_schema("MemberList", members=[MemberShown])
ProjectListShown = response_schema("ProjectList", projects=[ListedProjectShown])
KeyListShown = response_schema("KeyList", keys=[KeyShown])
