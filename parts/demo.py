"""A believable workspace, for a first look and for load tests."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import click

import settings
import store
from commands import cli, fetch_actor, in_database
from database import Row
from members import Member, Transaction
from models import PRIORITIES, STATUSES, Comment, Milestone, Project, Task, Whiteboard, write
from parts import attachments, resources
from parts.inbox import Notice
from times import TICKS_PER_MS, epoch_ms, uuid7, wire_time

AGENT = "Build agent"
PEOPLE = [
    ("Amara Okafor", "amara@example.com", "admin", "active"),
    ("Jonas Weber", "jonas@example.com", "member", "active"),
    ("Léa Dubois", "lea@example.com", "member", "active"),
    ("Priya Raman", "priya@example.com", "member", "active"),
    ("Tomás Herrera", "tomas@example.com", "member", "active"),
    ("Ingrid Solberg", "ingrid@example.com", "client", "active"),
    ("Kenji Watanabe", "kenji@example.com", "client", "active"),
    (AGENT, "agent@example.com", "member", "active"),
    ("Noor Haddad", "noor@example.com", "member", "invited"),
]
PROJECT_TEXTS = [
    ("Website relaunch", "New design, new words, and pages that load within a second."),
    ("Mobile app", "What the website does, in a pocket and without a network."),
    ("Office move", "From the second floor to the old printing house, by the end of the quarter."),
    ("Customer interviews", "Twenty conversations, and what we learn from them."),
    ("Accessibility audit", "Every page by keyboard, screen reader and at 200 %."),
]
MILESTONE_DUE_DAYS = {"Discovery": -20, "First version": 10, "Launch": 40}
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
AGENT_WORK = {"question": "Which version is meant?", "review": "Please review it."}  # by its reason
LABEL_NAMES = ("bug", "design", "idea", "texts")
NOTES: Row = {"filename": "notes.txt", "content_type": "text/plain", "data": b"What we agreed on\n"}
STATUS_WEIGHTS = (40, 20, 10, 30)
PRIORITY_WEIGHTS = (25, 45, 20, 10)
RECENT_TASKS = 60  # the newest tasks, which have comments, attachments and a history
DAY = 86_400_000  # milliseconds


class PastTransaction(Transaction):
    """A transaction with a given time, whose ids contain that time and bits from a given `Random`."""

    notifies = False

    def __init__(self, actor: Row, request_id: str, milliseconds: int, random: Random):
        super().__init__(actor, request_id)
        self.at = wire_time(milliseconds)
        self.last_tick = milliseconds * TICKS_PER_MS
        self.random = random

    def new_id(self) -> str:
        self.last_tick += 1
        return uuid7(self.last_tick, self.random.getrandbits(62))


class Demonstration:
    """A believable workspace, whose rows and ids are the same for the same seed and day.

    Times are in days from 00:00 UTC today, or from `midnight`, in milliseconds.
    """

    def __init__(self, transaction: Transaction, seed: int, tasks: int, midnight: int | None = None):
        self.transaction = transaction
        self.random = Random(seed)  # noqa: S311 - for variety, not for secrets
        self.id_bits = Random(seed)  # noqa: S311 - its own: the number of ids must not change other choices
        self.early = max(tasks - RECENT_TASKS, 0)
        self.recent = tasks - self.early
        self.midnight = epoch_ms() // DAY * DAY if midnight is None else midnight

    def fill(self, progress: Callable[..., AbstractContextManager]) -> None:
        """Add everything; `progress`, such as `click.progressbar`, wraps the rows of the early tasks."""
        self.add_people()
        self.add_projects()
        with progress(self.early_tasks(), length=self.early) as rows:
            Task.insert_row.run_many(rows)
        self.add_recent_tasks()
        self.add_meetings()
        self.add_whiteboards()
        project_id, _ = self.places[3]  # archived last, since an archived project takes no new tasks
        Project.edit(self.past(0, self.teammate()), project_id, {"status": "archived"})

    def milliseconds(self, days: float) -> int:
        return self.midnight + int(days * DAY)

    def time(self, days: float) -> str:
        return wire_time(self.milliseconds(days))

    def past(self, days: float, actor: Row) -> PastTransaction:
        return PastTransaction(actor, self.transaction.request_id, self.milliseconds(days), self.id_bits)

    def teammate(self) -> Row:
        return self.random.choice(self.team)

    def add_people(self) -> None:
        transaction = self.past(-62, self.transaction.actor)
        for full_name, email, role, status in PEOPLE:
            fields = {"full_name": full_name, "email": email, "role": role, "status": status}
            phone_number = f"+49 30 {self.random.randrange(1_000_000, 9_999_999)}"
            Member.add(transaction, phone_number=phone_number, **fields)
        *self.team, self.agent = sorted(Member.team(), key=lambda member: member["full_name"] == AGENT)
        self.clients = [member for member in Member.everyone() if member["kind"] == "client"]

    def add_projects(self) -> None:
        self.places: list[tuple[str, list[str]]] = []  # the ids of each project and its milestones
        for name, description in PROJECT_TEXTS:
            transaction = self.past(-61, self.teammate())
            project_id = Project.add(transaction, name=name, description=description)["id"]
            milestones = [
                Milestone.add(transaction, project_id=project_id, title=title, due_date=self.time(days))
                for title, days in MILESTONE_DUE_DAYS.items()
            ]
            self.places.append((project_id, [milestone["id"] for milestone in milestones]))
        of_one, owner = self.clients[-1]["id"], self.past(-61, self.transaction.actor)
        self.clients[-1] = Member.edit(owner, of_one, {"project_ids": [self.places[0][0]]})

    def early_tasks(self) -> Iterator[Row]:
        """Yield the rows of the tasks before the recent ones, oldest first; they have no activity."""
        # These are rows, because `Task.add` would take about four times as long.
        yesterday, start = self.time(-1), Task.next_number()
        for number in range(1, self.early + 1):
            transaction = self.past(-60 + 57 * number / self.early, self.teammate())
            fields, status = self.task_fields(), self.random.choices(STATUSES, STATUS_WEIGHTS)[0]
            version = 1 if status == "todo" else 2
            fields |= {"status": status, "number": start + number - 1, "version": version}
            if status == "done":
                fields["assignee_id"] = fields["assignee_id"] or transaction.actor["id"]
                fields |= {"completed_at": yesterday, "updated_at": yesterday}
            yield Task.new_row(transaction, **fields)

    def add_recent_tasks(self) -> None:
        """Add the last tasks, one for each hour before today, and the work on them."""
        waiting: list[str] = []
        for number in range(self.recent):
            days = (number - self.recent) / 24
            content = self.task_fields()
            content["labels"] = self.random.sample(LABEL_NAMES, self.random.randrange(3))
            creator = self.teammate()
            task_id = Task.add(self.past(days, creator), **content)["id"]
            if number % 6 == 0:
                attachments.attach(self.past(days + 0.01, self.teammate()), task_id, **NOTES)
            for author in self.random.choices(self.team + self.clients, k=self.random.randrange(3)):
                transaction = self.past(days + self.random.uniform(0.01, 0.03), author)
                remark = self.random.choice(REMARKS)
                if Member.sees(author, content["project_id"]):
                    Comment.add(transaction, task_id, content=remark)
            fields = {"status": self.random.choices(STATUSES, STATUS_WEIGHTS)[0]}
            if fields["status"] == "done":
                fields["assignee_id"] = self.teammate()["id"]
            Task.edit(self.past(days + 0.03, self.teammate()), task_id, fields, versions=None)
            is_ours = creator["id"] == self.transaction.actor["id"]  # so that the agent's work waits for us
            if fields["status"] == "todo" and is_ours and content["project_id"] != self.places[3][0]:
                waiting.append(task_id)
        for task_id, (reason, remark) in zip(waiting[-2:], AGENT_WORK.items(), strict=False):
            transaction, asks = self.past(0, self.agent), reason == "question"
            fields = {"status": "in_progress" if asks else reason, "assignee_id": self.agent["id"]}
            Task.edit(transaction, task_id, fields, versions=None)
            comment, task, _ = Comment.add(transaction, task_id, content=remark, question=asks)
            transaction.notifies = True  # the owner alone, not those who commented
            Notice.notify(transaction, task, reason, self.transaction.actor["id"], comment_id=comment["id"])

    def task_fields(self) -> Row:
        """Return fields that a client could send to add a task."""
        pick = self.random.choice
        project_id, milestone_ids = pick(self.places)
        title = f"{pick(VERBS)} {pick(THINGS)}"
        milestone_id = self.optional(pick(milestone_ids))
        description = self.optional(f"{title}, as discussed with {pick(PEOPLE)[0]}.")
        return {
            "project_id": project_id,
            "milestone_id": milestone_id,
            "title": title,
            "description": description,
            "priority": self.random.choices(PRIORITIES, PRIORITY_WEIGHTS)[0],
            "assignee_id": self.optional(self.teammate()["id"]),
            "due_date": self.optional(self.time(self.random.randrange(-10, 30) + 0.7)),
            "metadata": pick(("{}", f'{{"estimate":{self.random.randrange(1, 13)}}}')),
        }

    def optional(self, text: str) -> str | None:
        """Return the text, or None in a third of all calls."""
        return text if self.random.random() < 2 / 3 else None

    def add_meetings(self) -> None:
        for days in (-21, -14, -7, -1, 1, 2, 7, 14):
            organizer, *colleagues = self.random.sample(self.team, 3)
            guests = [self.transaction.actor, *colleagues, self.random.choice(self.clients)]
            resources.add_meeting(
                self.past(days - 30, organizer),
                title=self.random.choice(("Weekly", "Planning", "Retrospective", "Client demo")),
                location=self.optional(self.random.choice(("Room 2", "Video call"))),
                project_id=self.random.choice(self.places)[0],
                starts_at=self.time(days + 9 / 24),
                ends_at=self.time(days + 10 / 24),
                participant_ids=[guest["id"] for guest in guests if guest["id"] != organizer["id"]],
            )

    def add_whiteboards(self) -> None:
        for number in range(12):
            Whiteboard.add(
                self.past(-24 + 2 * number, self.teammate()),
                title=f"{self.random.choice(('Ideas', 'Sketch', 'Map', 'Notes'))} {number + 1}",
                project_id=self.optional(self.random.choice(self.places)[0]),
                content='{"shapes":[]}',
            )


def midnight_of(_: Any, option: Any, today: datetime | None) -> int | None:
    """Return the beginning of this day in UTC, in milliseconds."""
    midnight = round(today.replace(tzinfo=UTC).timestamp() * 1000) if today else None
    if midnight and midnight > epoch_ms():  # ids begin with their time, and new ones must be greater
        raise click.BadParameter("must not be in the future", param=option)
    return midnight


today_help = "The day on which it is today in the demonstration (default: today)."
today_type = click.DateTime(["%Y-%m-%d"])
today_option = click.option("--today", type=today_type, callback=midnight_of, help=today_help)


@cli.command()
@click.option("--tasks", type=click.IntRange(0, 5_000_000), default=200, show_default=True, help="How many.")
@click.option(
    "--seed", type=int, default=1, show_default=True, help="The same seed makes the same workspace."
)
@today_option
@in_database
def seed(tasks: int, seed: int, today: int | None) -> None:
    """Fill an empty workspace with a demonstration.

    It contains people of every role, projects with milestones, tasks in every status with due dates around
    today, comments, past and upcoming meetings, whiteboards and attachments.
    """
    if Project.listing():
        raise click.ClickException("the workspace already has projects; seed an empty one")
    with write(fetch_actor(None)) as transaction:
        Demonstration(transaction, seed, tasks, today).fill(partial(click.progressbar, label="Tasks"))
    store.optimize()
    counts = f"{len(PEOPLE)} people, {len(PROJECT_TEXTS)} projects, {tasks} tasks"
    click.echo(f"{counts}; {settings.program} project list")
