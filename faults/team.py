"""Whom a change tells, what becomes of claims and questions, in memory, to compare with (`team_model.py`).

Written from docs/api.md; it shares nothing with the service.
"""

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Members = set[str]


@dataclass(frozen=True)
class Key:
    """An API key of a member; an agent's completes and deletes nothing."""

    name: str
    holder: str
    client: Any = None
    is_agent: bool = False


@dataclass(eq=False)
class Comment:
    id: str
    key: Key
    names: Members


@dataclass(eq=False)
class Task:
    """A task. Its `mover` is the key that last changed its status, None if the end of a claim has."""

    id: str
    number: int
    external_id: str
    creator: str
    assignee_id: str | None
    status: str = "todo"
    version: int = 1
    mover: Key | None = None
    ends: bool = False  # its claim is for some minutes
    question: Comment | None = None
    comments: list[Comment] = field(default_factory=list)
    blockers: "set[Task]" = field(default_factory=set)

    @property
    def open_blockers(self) -> "set[Task]":
        return {task for task in self.blockers if task.status != "done"}

    @property
    def is_ready(self) -> bool:
        return self.status == "todo" and not (self.assignee_id or self.question or self.open_blockers)

    @property
    def shown(self) -> list:
        """What the API must show of it."""
        asked = self.question and self.question.id
        return [self.id, self.assignee_id, self.status, self.version, asked, self.ends]


class Team:
    """The tasks of a project, and what is unread. What is named after an action returns its status."""

    def __init__(self, owner: str):
        self.owner, self.step = owner, 0
        self.tasks: list[Task] = []
        # By member, task and reason: actor, excerpt, and the step that told it.
        self.unread: dict[tuple[str | None, str, str], tuple[str, str, int]] = {}

    def tell(self, actor: str, task: Task, reason: str, members: Any, text: str = "") -> None:
        for member in {*members} - {None, actor}:
            self.unread[member, task.id, reason] = actor, text, self.step

    def forget(self, task: Task, member: str | None = None) -> None:
        """Drop what a member has read of a task, or, of a deleted one, what anybody was told."""
        kept = {
            told: row
            for told, row in self.unread.items()
            if told[1] != task.id or member not in (None, told[0])
        }
        self.unread = kept

    def responsible(self, task: Task, actor: str) -> Members:
        return {*[member for member in (task.creator, self.owner) if member != actor][:1]}

    def add(self, key: Key, task: Task) -> None:
        self.tasks.append(task)
        self.tell(key.holder, task, "assigned", [task.assignee_id])

    def edit(self, key: Key, task: Task, fields: Row, *, by_sweeper: bool = False) -> int:
        """Change a task as a key does, or as the sweeper in its holder's name."""
        changes = {name: value for name, value in fields.items() if getattr(task, name) != value}
        if key.is_agent and "status" in changes and "done" in (task.status, changes["status"]):
            return 403
        if not changes:
            return 200
        blocked = self.blocked_by(task)
        for name, value in changes.items():
            setattr(task, name, value)
        task.version += 1
        if not by_sweeper:
            self.forget(task, key.holder)
        if changes.keys() & {"status", "assignee_id"}:
            task.ends = fields.get("ends", False)
        if "assignee_id" in changes:
            self.tell(key.holder, task, "assigned", [task.assignee_id])
        if "status" in changes:
            task.mover = None if by_sweeper else key
            if task.status == "review":
                self.tell(key.holder, task, "review", self.responsible(task, key.holder))
            if task.status == "done":
                task.question = None
                self.tell_free(key, task, blocked)
        return 200

    def blocked_by(self, task: Task) -> list[Task]:
        """The tasks that this one blocks, as long as it is open."""
        return [other for other in self.tasks if task in other.open_blockers]

    def tell_free(self, key: Key, task: Task, blocked: list[Task]) -> None:
        for other in blocked:
            if other.status != "done" and not other.open_blockers:
                self.tell(key.holder, other, "unblocked", [other.assignee_id], f"#{task.number} T")

    def claim(self, key: Key, task: Task, ends: bool) -> int:
        if task.question:
            return 409
        if task.status == "todo" and task.assignee_id in (None, key.holder):
            return self.edit(key, task, {"status": "in_progress", "assignee_id": key.holder, "ends": ends})
        if (task.status, task.assignee_id, task.mover) != ("in_progress", key.holder, key):
            return 409
        task.ends |= ends
        return 200

    def end_claim(self, task: Task) -> None:
        holder = str(task.assignee_id)
        self.edit(Key("", holder), task, {"status": "todo", "assignee_id": None}, by_sweeper=True)
        self.tell(holder, task, "claim_ended", self.responsible(task, holder))

    def block(self, key: Key, task: Task, blockers: set[Task]) -> int:
        return self.edit(key, task, {"blockers": blockers}) if blockers != task.open_blockers else 200

    def delete(self, key: Key, task: Task) -> int:
        if key.is_agent:
            return 403
        blocked = self.blocked_by(task)
        self.tasks.remove(task)
        for other in self.tasks:
            other.blockers.discard(task)
        self.tell_free(key, task, blocked)
        self.forget(task)
        return 200

    def comment(self, key: Key, task: Task, named: Members, text: str, is_question: bool) -> int:
        """Comment on the task, or ask; the comment gets its id when it is answered."""
        me, before, asked = key.holder, task.question, Members()
        if is_question and not (asked := named - {me} or self.responsible(task, me)):
            return 422
        task.comments.append(Comment("", key, named))
        answered = {before.key.holder} if before and before.key != key else Members()
        if is_question or answered:
            self.edit(key, task, {"question": task.comments[-1] if is_question else None})
        self.forget(task, me)
        others = {one.key.holder for one in task.comments} | {task.creator, task.assignee_id}
        self.tell(me, task, "answered", answered, text)
        self.tell(me, task, "question", asked, text)
        self.tell(me, task, "mentioned", named - asked - answered, text)
        self.tell(me, task, "commented", others - named - asked - answered, text)
        return 201

    def reword(self, key: Key, task: Task, comment: Comment, named: Members, text: str) -> int:
        """Change a comment, which tells whom it newly names."""
        if key.holder != comment.key.holder:
            return 403
        reason = "question" if task.question is comment else "mentioned"
        self.tell(key.holder, task, reason, named - comment.names, text)
        comment.names = named
        return 200

    def take_back(self, key: Key, task: Task, comment: Comment) -> int:
        """Delete a comment, and so a question."""
        if key.is_agent or key.holder not in (comment.key.holder, self.owner):
            return 403
        task.comments.remove(comment)
        return self.edit(key, task, {"question": None}) if task.question is comment else 200
