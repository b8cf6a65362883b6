"""A believable workspace, for a first look and for load tests."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from database import Row, instant, uuid7
from models import (
    PRIORITIES,
    STATUSES,
    Activity,
    Attachment,
    AttachmentContent,
    Comment,
    Meeting,
    Member,
    Milestone,
    Participant,
    Project,
    ProjectStats,
    Task,
    Transaction,
    Whiteboard,
)

PEOPLE = [
    ("Amara Okafor", "admin", "active"),
    ("Jonas Weber", "member", "active"),
    ("Léa Dubois", "member", "active"),
    ("Priya Raman", "member", "active"),
    ("Tomás Herrera", "member", "active"),
    ("Ingrid Solberg", "client", "active"),
    ("Kenji Watanabe", "client", "active"),
    ("Noor Haddad", "member", "invited"),
]
PROJECTS = [
    ("Website relaunch", "New design, new words, and pages that load within a second."),
    ("Mobile app", "What the website does, in a pocket and without a network."),
    ("Office move", "From the second floor to the old printing house, by the end of the quarter."),
    ("Customer interviews", "Twenty conversations, and what we learn from them."),
    ("Accessibility audit", "Every page by keyboard, screen reader and at 200 %."),
]
MILESTONES = ("Discovery", "First version", "Launch")
VERBS = ("Draft", "Review", "Prepare", "Fix", "Plan", "Measure", "Translate", "Test", "Publish", "Simplify")
THINGS = (
    "the landing page",
    "the sign-up form",
    "the price list",
    "the release notes",
    "the onboarding mail",
    "the floor plan",
    "the interview guide",
    "the search results",
    "the offline mode",
    "the colour contrast",
    "the café menu for the launch",
    "the moving boxes order",
)
REMARKS = (
    "Looks good to me.",
    "Could we do this after the launch?",
    "I have put a first version on the whiteboard.",
    "Waiting for the client's answer.",
    "Done, please have a look. 🎉",
    "Split the rest into its own task.",
)
WEIGHTS = (40, 20, 10, 30)  # of the statuses
DAY = 86_400_000  # milliseconds


class Demonstration:
    """A believable workspace: the same for the same seed on the same day."""

    def __init__(self, transaction: Transaction, seed: int, tasks: int):
        self.random = random.Random(seed)  # noqa: S311 - for variety, not for secrets
        self.transaction = transaction
        self.tasks = tasks
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        self.today = int(today.timestamp() * 1000)

    def at(self, days: float) -> tuple[str, str]:
        """An id made so many days from today, and that time."""
        milliseconds = self.today + int(days * DAY)
        tick = milliseconds * 4096 + self.random.randrange(4096)
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
        return uuid7(tick, self.random.getrandbits(62)), instant(moment)

    def people(self) -> None:
        for full_name, role, status in PEOPLE:
            email = f"{full_name.split()[0].lower().replace('é', 'e').replace('á', 'a')}@example.com"
            phone = f"+49 30 {self.random.randrange(1_000_000, 9_999_999)}"
            Member.add(
                self.transaction,
                full_name=full_name,
                email=email,
                role=role,
                phone_number=phone,
                status=status,
            )
        self.team = [m["id"] for m in Member.team()]
        self.clients = [m["id"] for m in Member.everyone() if m["kind"] == "client"]

    def projects(self) -> None:
        self.places = []
        for name, description in PROJECTS:
            owner_id = self.random.choice(self.team)
            made = Project.add(self.transaction, name=name, description=description, owner_id=owner_id)
            milestones = []
            for number, title in enumerate(MILESTONES):
                id, created_at = self.at(-60 + number)
                _, due_date = self.at(-20 + 30 * number)
                times = {"due_date": due_date, "created_at": created_at, "updated_at": created_at}
                Milestone.insertion.run(id=id, project_id=made["id"], title=title, description=None, **times)
                milestones.append(id)
            self.places.append((made["id"], milestones))
        Project.edit(self.transaction, self.places[3][0], {"status": "archived"})

    def task_rows(self, counts: dict[str, dict[str, int]]) -> Iterator[Row]:
        """The tasks, oldest first, the last of them made today."""
        pick = self.random.choice
        for number in range(self.tasks):
            id, created_at = self.at(-60 + 60 * (number + 1) / (self.tasks + 1))
            project_id, milestones = pick(self.places)
            status = self.random.choices(STATUSES, WEIGHTS)[0]
            counts[project_id][status] += 1
            title = f"{pick(VERBS)} {pick(THINGS)}"
            description = pick((None, f"{title}, as discussed with {pick(PEOPLE)[0]}."))
            due_date = self.at(self.random.randrange(-10, 30) + 0.7)[1] if pick((True, True, False)) else None
            completed_at = max(created_at, self.at(-1)[1]) if status == "done" else None
            self.recent.append((id, title, status, created_at))
            del self.recent[:-60]
            yield {
                "id": id,
                "project_id": project_id,
                "milestone_id": pick((None, *milestones)),
                "title": title,
                "description": description,
                "status": status,
                "priority": self.random.choices(PRIORITIES, (25, 45, 20, 10))[0],
                "assignee_id": pick((None, *self.team)),
                "created_by": pick(self.team),
                "start_date": None,
                "due_date": due_date,
                "completed_at": completed_at,
                "metadata": pick(("{}", '{"estimate":' + str(self.random.randrange(1, 13)) + "}")),
                "version": 1 if status == "todo" else 2,
                "created_at": created_at,
                "updated_at": completed_at or created_at,
                "search": Task.searchable(title, description),
            }

    def work(self, progress: Callable[[Iterator[Row]], Any]) -> None:
        """The tasks with their counters, and what was said and done about the last of them."""
        self.recent: list[tuple[str, str, str, str]] = []
        counts = {project_id: dict.fromkeys(STATUSES, 0) for project_id, _ in self.places}
        Task.insertion.run_many(progress(self.task_rows(counts)))
        for project_id, counted in counts.items():
            ProjectStats.delete_by_id(project_id)
            ProjectStats.insertion.run(project_id=project_id, **counted)
        for number, (task_id, title, status, _) in enumerate(self.recent):
            hours = (number - len(self.recent)) / 24
            self.remark(task_id, title, hours)
            if status != "todo":
                self.note(hours + 0.01, "moved", "task", task_id, title, f'{{"status":["todo","{status}"]}}')
            if number % 6 == 0:
                self.attach(task_id, hours)

    def remark(self, task_id: str, title: str, days: float) -> None:
        for _ in range(self.random.randrange(3)):
            id, created_at = self.at(days)
            author_id = self.random.choice(self.team + self.clients)
            content = self.random.choice(REMARKS)
            Comment.insertion.run(
                id=id, task_id=task_id, author_id=author_id, content=content, created_at=created_at
            )
            self.note(days, "created", "comment", id, title)

    def note(self, days: float, action: str, entity: str, id: str, title: str, changes: str = "{}") -> None:
        activity_id, created_at = self.at(days)
        Activity.insertion.run(
            id=activity_id,
            actor_id=self.random.choice(self.team),
            action=action,
            entity=entity,
            entity_id=id,
            title=title,
            changes=changes,
            request_id=self.transaction.request_id,
            created_at=created_at,
        )

    def attach(self, task_id: str, days: float) -> None:
        id, created_at = self.at(days)
        data = f"Notes for task {task_id}\n".encode()
        Attachment.insertion.run(
            id=id,
            task_id=task_id,
            filename="notes.txt",
            content_type="text/plain",
            size=len(data),
            created_by=self.random.choice(self.team),
            created_at=created_at,
        )
        AttachmentContent.add(id, data)

    def meetings(self) -> None:
        for number, days in enumerate((-21, -14, -7, -1, 1, 2, 7, 14)):
            id, created_at = self.at(-30 + number / 100)
            project_id, _ = self.random.choice(self.places)
            organizer_id, *others = self.random.sample(self.team, 3)
            Meeting.insertion.run(
                id=id,
                title=self.random.choice(("Weekly", "Planning", "Retrospective", "Client demo")),
                description=None,
                location=self.random.choice(("Room 2", "Video call", None)),
                project_id=project_id,
                starts_at=self.at(days + 0.4)[1],
                ends_at=self.at(days + 0.44)[1],
                organizer_id=organizer_id,
                created_at=created_at,
                updated_at=created_at,
            )
            for member_id in {self.owner, *others, self.random.choice(self.clients)} - {organizer_id}:
                Participant.insertion.run(meeting_id=id, member_id=member_id)

    @property
    def owner(self) -> str:
        return self.transaction.actor["id"]

    def whiteboards(self) -> None:
        for number in range(12):
            id, created_at = self.at(-24 + 2 * number)
            project_id, _ = self.random.choice(self.places)
            Whiteboard.insertion.run(
                id=id,
                title=f"{self.random.choice(('Ideas', 'Sketch', 'Map', 'Notes'))} {number + 1}",
                project_id=self.random.choice((None, project_id)),
                content='{"shapes":[]}',
                updated_by=self.random.choice(self.team),
                created_at=created_at,
                updated_at=created_at,
            )
