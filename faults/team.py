"""Whom a change tells, what becomes of claims and questions, in memory, to compare with (`team_model.py`).

Written from docs/api.md; it shares nothing with the service.
"""

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Key:
    """An API key, by its name, of a member."""

    name: str
    holder: str
    client: Any
    scope: str = "write"

    @property
    def is_agent(self) -> bool:
        return self.scope == "agent"


@dataclass(eq=False)
class Comment:
    id: str
    key: Key
    names: set[str]


@dataclass(eq=False)
class Task:
    """A task. Its `mover` is the key that last changed its status, None if the end of a claim has."""

    id: str
    number: int
    creator: str
    assignee_id: str | None = None
    status: str = "todo"
    version: int = 1
    mover: Key | None = None
    ends: bool = False  # its claim is for some minutes
    question: Comment | None = None
    comments: list[Comment] = field(default_factory=list)
    external_id: str = ""
    blockers: "set[Task]" = field(default_factory=set)

    @property
    def open_blockers(self) -> "set[Task]":
        return {task for task in self.blockers if task.status != "done"}

    @property
    def is_ready(self) -> bool:
        return (self.status, self.assignee_id, self.question, self.open_blockers) == (
            "todo",
            None,
            None,
            set(),
        )

    @property
    def shown(self) -> Row:
        """What the API must show of it."""
        names = ("id", "assignee_id", "status", "version")
        asked = self.question and self.question.id
        return {name: getattr(self, name) for name in names} | {"question_id": asked, "ends": self.ends}


class Team:
    """The tasks of a project, and what is unread. What is named after an action returns its status."""

    def __init__(self, owner: str):
        self.owner = owner
        self.tasks: list[Task] = []
        self.unread: dict[tuple[str, str, str], Row] = {}  # by member, task and reason
        self.step = 0

    def tell(self, actor: str, task: Task, reason: str, *members: str | None, text: str = "") -> None:
        for member in {*members} - {None, actor}:
            told = {"actor": actor, "excerpt": text, "step": self.step}
            self.unread[str(member), task.id, reason] = told

    def forget(self, task: Task, member: str | None = None) -> None:
        """Drop what a member has read of a task, or, where that is deleted, what anybody was told of it."""
        gone = [told for told in self.unread if told[1] == task.id and member in (None, told[0])]
        for told in gone:
            del self.unread[told]

    def responsible(self, task: Task, actor: str) -> list[str]:
        return [member for member in (task.creator, self.owner) if member != actor][:1]

    def add(self, key: Key, task: Task) -> None:
        self.tasks.append(task)
        self.tell(key.holder, task, "assigned", task.assignee_id)
        if task.status == "review":
            self.tell(key.holder, task, "review", *self.responsible(task, key.holder))

    def edit(self, key: Key, task: Task, fields: Row, *, by_sweeper: bool = False) -> int:
        """Change a task as a key does, or as the sweeper in its holder's name."""
        changes = {name for name, value in fields.items() if getattr(task, name) != value}
        if not changes:
            return 200
        if (
            key.is_agent
            and not by_sweeper
            and "status" in changes
            and "done" in (task.status, fields["status"])
        ):
            return 403
        blocks = self.blocked_by(task)
        for name in changes:
            setattr(task, name, fields[name])
        task.version += 1
        if changes & {"status", "assignee_id"}:
            task.ends = fields.get("ends", False)
        if not by_sweeper:
            self.forget(task, key.holder)
        if "assignee_id" in changes:
            self.tell(key.holder, task, "assigned", task.assignee_id)
        if "status" in changes:
            task.mover = None if by_sweeper else key
            if task.status == "review":
                self.tell(key.holder, task, "review", *self.responsible(task, key.holder))
            if task.status == "done":
                task.question = None
                self.tell_free(key, task, blocks)
        return 200

    def blocked_by(self, task: Task) -> list[Task]:
        """The tasks that this one blocks, as long as it is open."""
        return [other for other in self.tasks if task in other.open_blockers]

    def tell_free(self, key: Key, task: Task, blocked: list[Task]) -> None:
        for other in blocked:
            if other.status != "done" and not other.open_blockers:
                self.tell(key.holder, other, "unblocked", other.assignee_id, text=f"#{task.number} T")

    def claim(self, key: Key, task: Task, ends: bool) -> int:
        if task.question:
            return 409
        if task.status == "todo" and task.assignee_id in (None, key.holder):
            claimed = {"status": "in_progress", "assignee_id": key.holder, "ends": ends}
            return self.edit(key, task, claimed)
        if (task.status, task.assignee_id, task.mover) != ("in_progress", key.holder, key):
            return 409
        task.ends |= ends
        return 200

    def end_claim(self, task: Task) -> None:
        holder = Key("", str(task.assignee_id), None)
        self.edit(holder, task, {"status": "todo", "assignee_id": None}, by_sweeper=True)
        self.tell(holder.holder, task, "claim_ended", *self.responsible(task, holder.holder))

    def block(self, key: Key, task: Task, blockers: set[Task]) -> int:
        if blockers == task.open_blockers:
            return 200
        return self.edit(key, task, {"blockers": blockers})

    def delete(self, key: Key, task: Task) -> int:
        if key.is_agent:
            return 403
        blocks = self.blocked_by(task)
        self.tasks.remove(task)
        for other in self.tasks:
            other.blockers.discard(task)
        self.tell_free(key, task, blocks)
        self.forget(task)
        return 200

    def comment(self, key: Key, task: Task, named: set[str], text: str, is_question: bool) -> int:
        """Comment on the task, or ask; the comment gets its id when it is answered."""
        me, asked = key.holder, set[str]()
        if is_question:
            asked = named - {me} or {*self.responsible(task, me)}
            if not asked:
                return 422
        before, comment = task.question, Comment("", key, named)
        is_answer = before is not None and before.key != key
        answered = {before.key.holder} if before and is_answer else set()
        task.comments.append(comment)
        if is_question or is_answer:
            self.edit(key, task, {"question": comment if is_question else None})
        self.forget(task, me)
        self.tell(me, task, "answered", *answered, text=text)
        self.tell(me, task, "question", *asked, text=text)
        self.tell(me, task, "mentioned", *named - asked - answered, text=text)
        others = {one.key.holder for one in task.comments} | {task.creator, task.assignee_id}
        self.tell(me, task, "commented", *others - named - asked - answered, text=text)
        return 201

    def reword(self, key: Key, task: Task, comment: Comment, named: set[str], text: str) -> int:
        """Change a comment, which tells whom it newly names."""
        if key.holder != comment.key.holder:
            return 403
        reason = "question" if task.question is comment else "mentioned"
        self.tell(key.holder, task, reason, *named - comment.names, text=text)
        comment.names = named
        return 200

    def take_back(self, key: Key, task: Task, comment: Comment) -> int:
        """Delete a comment, and so a question."""
        if key.is_agent or key.holder not in (comment.key.holder, self.owner):
            return 403
        task.comments.remove(comment)
        if task.question is comment:
            self.edit(key, task, {"question": None})
        return 200
