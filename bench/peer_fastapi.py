"""A peer of the benchmark: three of the service's operations with FastAPI, SQLAlchemy 2 and pydantic.

The code follows their documentation; uvicorn serves it. The tables are the same as in `models.py`, with the
indexes that these operations use. `DATABASE` in the environment is the path of its SQLite file.
"""

import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from sqlalchemy import JSON, Column, ForeignKey, Index, Table, create_engine, event, func, orm, select
from sqlalchemy.orm import Mapped, Session, joinedload, mapped_column, relationship, selectinload

# FastAPI has this many threads for views. With fewer connections, some would be closed and opened again.
engine = create_engine(f"sqlite:///{os.environ['DATABASE']}", connect_args={"timeout": 10}, pool_size=40)


@event.listens_for(engine, "connect")
def set_pragmas(connection: Any, _: Any) -> None:
    """Make a new connection as durable as the service's, with the same checkpoints."""
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "wal_autocheckpoint=4000"):
        connection.execute(f"PRAGMA {pragma}")


def new_id() -> str:
    """Return an id that sorts by age, like the service's, so that insertions append to the indexes."""
    return f"{time.time_ns():016x}-{secrets.token_hex(10)}"


def wire_time(value: datetime) -> str:
    """Return a time in the format of the tables and the responses."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# Tables ---------------------------------------------------------------------------------------


class Base(orm.DeclarativeBase):
    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)


class Member(Base):
    __tablename__ = "member"
    full_name: Mapped[str]
    email: Mapped[str]
    role: Mapped[str]
    status: Mapped[str]


class ApiKey(Base):
    __tablename__ = "api_key"
    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    hash: Mapped[str] = mapped_column(unique=True)
    expires_at: Mapped[str | None]
    revoked_at: Mapped[str | None]


class Project(Base):
    __tablename__ = "project"
    name: Mapped[str]
    status: Mapped[str]
    owner_id: Mapped[str] = mapped_column(ForeignKey("member.id"))


class Milestone(Base):
    __tablename__ = "milestone"
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    title: Mapped[str]
    due_date: Mapped[str | None]


blocker = Table(
    "blocker",
    Base.metadata,
    Column("task_number", ForeignKey("task.number", ondelete="CASCADE"), primary_key=True),
    Column("blocker_number", ForeignKey("task.number", ondelete="CASCADE"), primary_key=True, index=True),
)


class Task(Base):
    __tablename__ = "task"
    __table_args__ = (Index("task_project", "project_id", "id"), {"sqlite_autoincrement": True})
    id: Mapped[str] = mapped_column(unique=True, default=new_id)
    number: Mapped[int] = mapped_column(primary_key=True)
    external_id: Mapped[str | None] = mapped_column(unique=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    milestone_id: Mapped[str | None] = mapped_column(ForeignKey("milestone.id"))
    title: Mapped[str]
    description: Mapped[str | None]
    status: Mapped[str]
    priority: Mapped[str]
    assignee_id: Mapped[str | None] = mapped_column(ForeignKey("member.id"))
    created_by: Mapped[str] = mapped_column(ForeignKey("member.id"))
    start_date: Mapped[str | None]
    due_date: Mapped[str | None]
    completed_at: Mapped[str | None]
    claimed_until: Mapped[str | None]
    question_id: Mapped[str | None]
    labels: Mapped[list[str]] = mapped_column(JSON)
    checks: Mapped[dict[str, int] | None] = mapped_column(JSON)
    repeat: Mapped[str | None]
    repeat_from: Mapped[str]
    repeats: Mapped[int | None]
    rank: Mapped[str]
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSON)
    version: Mapped[int]
    created_at: Mapped[str]
    updated_at: Mapped[str]

    project: Mapped[Project] = relationship()
    milestone: Mapped[Milestone | None] = relationship()
    assignee: Mapped[Member | None] = relationship(foreign_keys=assignee_id)
    creator: Mapped[Member] = relationship(foreign_keys=created_by)
    blocked_by: Mapped[list["Task"]] = relationship(
        secondary=blocker,
        primaryjoin=number == blocker.c.task_number,
        secondaryjoin=lambda: (Task.number == blocker.c.blocker_number) & (Task.status != "done"),
    )


class Activity(Base):
    __tablename__ = "activity"
    actor_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    action: Mapped[str]
    entity: Mapped[str]
    entity_id: Mapped[str]
    title: Mapped[str]
    created_at: Mapped[str]


class Event(Base):
    __tablename__ = "event"
    name: Mapped[str]
    body: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[str]


# Requests and responses -----------------------------------------------------------------------

Id = Annotated[str, Field(pattern="^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
Instant = Annotated[AwareDatetime, AfterValidator(wire_time)]


class TaskIn(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)
    project_id: Id
    milestone_id: Id | None = None
    title: str = Field(min_length=1, max_length=500)
    description: str | None = Field(None, max_length=50_000)
    priority: Literal["low", "medium", "high", "urgent"] = "medium"
    assignee_id: Id | None = None
    start_date: Instant | None = None
    due_date: Instant | None = None
    external_id: str | None = Field(None, min_length=1, max_length=200)
    metadata_: dict[str, Any] = Field(default_factory=dict, alias="metadata")


class Out(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    id: str


class ProfileOut(Out):
    full_name: str
    email: str
    role: str


class ProjectOut(Out):
    name: str
    status: str
    owner_id: str


class MilestoneOut(Out):
    title: str
    due_date: str | None


class BlockerOut(Out):
    number: int
    title: str


class TaskOut(Out):
    number: int
    external_id: str | None
    blocked_by: list[BlockerOut]
    project_id: str
    milestone_id: str | None
    title: str
    description: str | None
    status: str
    priority: str
    assignee_id: str | None
    created_by: str
    start_date: str | None
    due_date: str | None
    completed_at: str | None
    claimed_until: str | None
    question_id: str | None
    labels: list[str]
    checks: dict[str, int] | None
    repeat: str | None
    repeat_from: str
    repeats: int | None
    rank: str
    metadata: dict[str, Any] = Field(validation_alias="metadata_")
    version: int
    created_at: str
    updated_at: str


class TaskDetailOut(TaskOut):
    project: ProjectOut
    milestone: MilestoneOut | None
    assignee: ProfileOut | None
    creator: ProfileOut


class PageOut(BaseModel):
    tasks: list[TaskOut]
    total: int


# The operations -------------------------------------------------------------------------------

app = FastAPI()
BLOCKERS = selectinload(Task.blocked_by)
RELATED = [joinedload(name) for name in (Task.project, Task.milestone, Task.assignee, Task.creator)]


def get_session() -> Iterator[Session]:
    with Session(engine, expire_on_commit=False) as session:
        yield session


SessionOfRequest = Annotated[Session, Depends(get_session)]
Credentials = Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]


def get_caller(credentials: Credentials, session: SessionOfRequest) -> Member:
    """Return the member whose key was sent."""
    hashed, at = hashlib.sha256(credentials.credentials.encode()).hexdigest(), wire_time(datetime.now(UTC))
    is_valid = ApiKey.revoked_at.is_(None) & (ApiKey.expires_at.is_(None) | (ApiKey.expires_at > at))
    members = select(Member).join(ApiKey, ApiKey.member_id == Member.id)
    caller = session.scalar(members.where(ApiKey.hash == hashed, is_valid, Member.status == "active"))
    if caller is None:
        raise HTTPException(401, "no valid API key", {"WWW-Authenticate": "Bearer"})
    return caller


Caller = Annotated[Member, Depends(get_caller)]


@app.get("/api/v1/tasks/{id}", response_model=TaskDetailOut)
def get_task(id: str, session: SessionOfRequest, caller: Caller) -> Any:
    """Show a task with its project, milestone and profiles."""
    task = session.scalar(select(Task).where(Task.id == id).options(*RELATED, BLOCKERS))
    if task is None:
        raise HTTPException(404, "no such task")
    return task


@app.get("/api/v1/tasks", response_model=PageOut)
def list_tasks(session: SessionOfRequest, caller: Caller, project_id: Id) -> Any:
    """List the tasks of a project, newest first."""
    page = select(Task).where(Task.project_id == project_id).order_by(Task.id.desc()).limit(20)
    page = page.options(BLOCKERS)
    count = select(func.count()).where(Task.project_id == project_id)
    return {"tasks": session.scalars(page).all(), "total": session.scalar(count)}


@app.post("/api/v1/tasks", status_code=201, response_model=TaskOut)
def create_task(body: TaskIn, session: SessionOfRequest, caller: Caller) -> Any:
    """Create a task, with its activity and its event in one transaction."""
    project = session.get(Project, body.project_id)
    milestone = session.get(Milestone, body.milestone_id) if body.milestone_id else None
    if project is None or project.status == "archived":
        raise HTTPException(422, "project_id: no such active project")
    if body.milestone_id and (milestone is None or milestone.project_id != project.id):
        raise HTTPException(422, "milestone_id: no such milestone in the project")
    if body.assignee_id and session.get(Member, body.assignee_id) is None:
        raise HTTPException(422, "assignee_id: no such member")
    at = wire_time(datetime.now(UTC))
    fields = body.model_dump() | {"status": "todo", "labels": [], "rank": new_id(), "version": 1}
    fields["repeat_from"] = "due_date"
    task = Task(created_by=caller.id, created_at=at, updated_at=at, blocked_by=[], **fields)
    session.add(task)
    session.flush()  # gives it its id
    what = {"action": "created", "entity": "task", "entity_id": task.id, "title": task.title}
    shown, actor = TaskOut.model_validate(task), ProfileOut.model_validate(caller)
    told = {"timestamp": at, "data": {"task": shown.model_dump()}, "actor": actor.model_dump()}
    activity = Activity(actor_id=caller.id, created_at=at, **what)
    session.add_all([activity, Event(name="task.created", body=told, created_at=at)])
    session.commit()
    return task
