"""A peer of the benchmark: three of the service's operations with FastAPI, SQLAlchemy 2 and pydantic.

Written as their documentation recommends; uvicorn serves it. The tables are those of `models.py`, with the
indexes that these operations use. `DATABASE` in the environment is the path of its SQLite file.
"""

import hashlib
import os
import secrets
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator
from sqlalchemy import JSON, DateTime, ForeignKey, Index, create_engine, event, func, select
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    column_property,
    joinedload,
    mapped_column,
    relationship,
    selectinload,
    sessionmaker,
    undefer,
)
from sqlalchemy.types import TypeDecorator

# As many connections as FastAPI has threads for views, so that none is closed and opened again.
engine = create_engine(f"sqlite:///{os.environ['DATABASE']}", connect_args={"timeout": 10}, pool_size=40)
open_session = sessionmaker(engine, expire_on_commit=False)


@event.listens_for(engine, "connect")
def set_pragmas(connection: Any, _: Any) -> None:
    """Make a new connection as durable as ours, with the same checkpoints."""
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "wal_autocheckpoint=4000"):
        connection.execute(f"PRAGMA {pragma}")


def new_id() -> str:
    """A UUIDv7, as ours are: ids sort by age, and insertions append to the indexes."""
    milliseconds = time.time_ns() // 1_000_000
    value = milliseconds << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))


# Tables ---------------------------------------------------------------------------------------


class UTCDateTime(TypeDecorator):
    """Aware times, stored as naive UTC (the recipe of SQLAlchemy's documentation)."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value and value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        return value and value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    type_annotation_map = {datetime: UTCDateTime, dict[str, Any]: JSON}


class Member(Base):
    __tablename__ = "member"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    full_name: Mapped[str]
    email: Mapped[str]
    role: Mapped[str]
    status: Mapped[str]


class ApiKey(Base):
    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    hash: Mapped[str] = mapped_column(unique=True)
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class Project(Base):
    __tablename__ = "project"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str]
    status: Mapped[str]
    owner_id: Mapped[str] = mapped_column(ForeignKey("member.id"))


class Milestone(Base):
    __tablename__ = "milestone"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    title: Mapped[str]
    due_date: Mapped[datetime | None]


class Comment(Base):
    __tablename__ = "comment"
    __table_args__ = (Index("comment_task", "task_id", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    task_id: Mapped[str] = mapped_column(ForeignKey("task.id"))
    author_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    content: Mapped[str]
    created_at: Mapped[datetime]


class Attachment(Base):
    __tablename__ = "attachment"
    __table_args__ = (Index("attachment_task", "task_id", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    task_id: Mapped[str] = mapped_column(ForeignKey("task.id"))
    filename: Mapped[str]
    content_type: Mapped[str]
    size: Mapped[int]
    created_by: Mapped[str] = mapped_column(ForeignKey("member.id"))
    created_at: Mapped[datetime]


class Task(Base):
    __tablename__ = "task"
    __table_args__ = (Index("task_project", "project_id", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    milestone_id: Mapped[str | None] = mapped_column(ForeignKey("milestone.id"))
    title: Mapped[str]
    description: Mapped[str | None]
    status: Mapped[str]
    priority: Mapped[str]
    assignee_id: Mapped[str | None] = mapped_column(ForeignKey("member.id"))
    created_by: Mapped[str] = mapped_column(ForeignKey("member.id"))
    start_date: Mapped[datetime | None]
    due_date: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata")
    version: Mapped[int]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]

    project: Mapped[Project] = relationship()
    milestone: Mapped[Milestone | None] = relationship()
    assignee: Mapped[Member | None] = relationship(foreign_keys=assignee_id)
    creator: Mapped[Member] = relationship(foreign_keys=created_by)
    attachments: Mapped[list[Attachment]] = relationship(order_by=Attachment.id)
    comment_count: Mapped[int] = column_property(
        select(func.count()).where(Comment.task_id == id).scalar_subquery(), deferred=True
    )


class Activity(Base):
    __tablename__ = "activity"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    actor_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    action: Mapped[str]
    entity: Mapped[str]
    entity_id: Mapped[str]
    title: Mapped[str]
    changes: Mapped[dict[str, Any]] = mapped_column(default=dict)
    request_id: Mapped[str]
    created_at: Mapped[datetime]


class Event(Base):
    __tablename__ = "event"

    seq: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    body: Mapped[str]
    created_at: Mapped[datetime]


def create_tables() -> None:
    """Create the tables in a new file."""
    Base.metadata.create_all(engine)


TASK_DETAIL = select(Task).options(
    joinedload(Task.project, innerjoin=True),
    joinedload(Task.milestone),
    joinedload(Task.assignee),
    joinedload(Task.creator, innerjoin=True),
    selectinload(Task.attachments),
    undefer(Task.comment_count),
)


# What is taken and answered -------------------------------------------------------------------

Id = Annotated[str, Field(pattern="^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
Status = Literal["todo", "in_progress", "review", "done"]
Priority = Literal["low", "medium", "high", "urgent"]


class TaskIn(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    project_id: Id
    milestone_id: Id | None = None
    title: str = Field(min_length=1, max_length=500)
    description: str | None = Field(None, max_length=50_000)
    priority: Priority = "medium"
    assignee_id: Id | None = None
    start_date: AwareDatetime | None = None
    due_date: AwareDatetime | None = None
    metadata_: dict[str, Any] = Field(default_factory=dict, alias="metadata")

    @model_validator(mode="after")
    def start_before_due(self) -> "TaskIn":
        if self.start_date and self.due_date and self.start_date > self.due_date:
            raise ValueError("start_date must not be after due_date")
        return self


class Out(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class ProfileOut(Out):
    id: str
    full_name: str
    email: str
    role: str


class ProjectOut(Out):
    id: str
    name: str
    status: str
    owner_id: str


class MilestoneOut(Out):
    id: str
    title: str
    due_date: datetime | None


class AttachmentOut(Out):
    id: str
    task_id: str
    filename: str
    content_type: str
    size: int
    created_by: str
    created_at: datetime


class TaskOut(Out):
    id: str
    project_id: str
    milestone_id: str | None
    title: str
    description: str | None
    status: Status
    priority: Priority
    assignee_id: str | None
    created_by: str
    start_date: datetime | None
    due_date: datetime | None
    completed_at: datetime | None
    metadata: dict[str, Any] = Field(validation_alias="metadata_")
    version: int
    created_at: datetime
    updated_at: datetime


class TaskDetailOut(TaskOut):
    comment_count: int
    attachments: list[AttachmentOut]
    project: ProjectOut
    milestone: MilestoneOut | None
    assignee: ProfileOut | None
    creator: ProfileOut


class PageOut(Out):
    tasks: list[TaskOut]
    total: int
    limit: int
    offset: int


class TaskCreated(Out):
    """The body of the event."""

    id: str
    event: str
    timestamp: datetime
    data: dict[str, TaskOut]
    actor: ProfileOut
    request_id: str


# The operations -------------------------------------------------------------------------------

app = FastAPI()
bearer = HTTPBearer()


def get_session() -> Iterator[Session]:
    with open_session() as session:
        yield session


SessionOfRequest = Annotated[Session, Depends(get_session)]


def get_caller(
    credentials: Annotated[HTTPAuthorizationCredentials, Depends(bearer)], session: SessionOfRequest
) -> Member:
    """The member whose key was sent."""
    caller = session.scalar(
        select(Member)
        .join(ApiKey, ApiKey.member_id == Member.id)
        .where(
            ApiKey.hash == hashlib.sha256(credentials.credentials.encode()).hexdigest(),
            ApiKey.revoked_at.is_(None),
            ApiKey.expires_at.is_(None) | (ApiKey.expires_at > datetime.now(UTC)),
            Member.status == "active",
        )
    )
    if caller is None:
        raise HTTPException(401, "no valid API key", {"WWW-Authenticate": "Bearer"})
    return caller


Caller = Annotated[Member, Depends(get_caller)]


@app.get("/api/v1/tasks/{id}", response_model=TaskDetailOut)
def get_task(id: str, session: SessionOfRequest, caller: Caller) -> Any:
    """Show a task with its project, milestone, profiles and attachments."""
    task = session.scalar(TASK_DETAIL.where(Task.id == id))
    if task is None:
        raise HTTPException(404, "no such task")
    return task


@app.get("/api/v1/tasks", response_model=PageOut)
def list_tasks(
    session: SessionOfRequest,
    caller: Caller,
    project_id: Id | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Any:
    """List tasks, newest first."""
    page, count = select(Task).order_by(Task.id.desc()), select(func.count()).select_from(Task)
    if project_id is not None:
        page, count = page.where(Task.project_id == project_id), count.where(Task.project_id == project_id)
    tasks = session.scalars(page.limit(limit).offset(offset)).all()
    return {"tasks": tasks, "total": session.scalar(count), "limit": limit, "offset": offset}


@app.post("/api/v1/tasks", status_code=201, response_model=TaskOut)
def create_task(body: TaskIn, session: SessionOfRequest, caller: Caller) -> Any:
    """Create a task, with its activity and its event in one transaction."""
    check_references(body, session)
    now, request_id = datetime.now(UTC), f"req_{secrets.token_hex(16)}"
    task = Task(
        id=new_id(),
        status="todo",
        created_by=caller.id,
        completed_at=None,
        version=1,
        created_at=now,
        updated_at=now,
        **body.model_dump(),
    )
    activity = Activity(
        actor_id=caller.id,
        action="created",
        entity="task",
        entity_id=task.id,
        title=task.title,
        request_id=request_id,
        created_at=now,
    )
    created = TaskCreated(
        id=f"evt_{new_id().replace('-', '')}",
        event="task.created",
        timestamp=now,
        data={"task": TaskOut.model_validate(task)},
        actor=ProfileOut.model_validate(caller),
        request_id=request_id,
    )
    row = Event(id=created.id, name=created.event, body=created.model_dump_json(), created_at=now)
    session.add_all([task, activity, row])
    session.commit()
    return task


def check_references(body: TaskIn, session: Session) -> None:
    """Refuse a task whose project, milestone or assignee does not exist or does not fit."""
    problems = {}
    project = session.get(Project, body.project_id)
    if project is None or project.status == "archived":
        problems["project_id"] = "no such active project"
    if body.milestone_id is not None:
        milestone = session.get(Milestone, body.milestone_id)
        if milestone is None or milestone.project_id != body.project_id:
            problems["milestone_id"] = "no such milestone in the project"
    if body.assignee_id is not None and session.get(Member, body.assignee_id) is None:
        problems["assignee_id"] = "no such member"
    if problems:
        errors = [{"type": "value_error", "loc": ("body", name), "msg": problems[name]} for name in problems]
        raise RequestValidationError(errors)
