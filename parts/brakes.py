"""The brakes on agents: a task on which they get no further, and the stop of all agents."""

from typing import Any

import click
from peewee import SQL, ForeignKeyField, TextField, fn

import schemas
from app import api
from commands import as_option, cli, fetch_actor, in_database, load_fields
from database import Identified, Row, columns, statement
from errors import Forbidden
from lists import FILTERS
from members import Activity, ApiKey, Member, Transaction, profile
from models import Task, write
from wire import operation

MAX_TRIES = 3


class AgentStop(Identified):
    """The stop of all agents, while there is one."""

    member = ForeignKeyField(Member, index=False)
    reason = TextField()
    created_at = TextField()

    end = statement(lambda cls: cls.delete())

    @statement
    def current(cls: Any):
        stop = cls.select(*columns(cls, "id", "member_id"), *profile(Member, "by"))
        return stop.join(Member, on=(cls.member == Member.id))

    @classmethod
    def put(cls, transaction: Transaction, reason: str | None) -> Row:
        """Stop all agents for this reason; None lets them go on. Return the stop."""
        old = (cls.current.one() or {}).get("reason")
        cls.end.run()
        if reason is not None:
            made = {"id": transaction.new_id(), "member_id": transaction.actor["id"]}
            cls.insert_row.run(**made, reason=reason, created_at=transaction.at)
        if reason != old:  # pages read the stop again when they see this
            Member.record(transaction, "updated", transaction.actor, {"stop": [old, reason]})
        return {"stop": cls.current.one()}


class Brakes:
    @staticmethod
    def check(caller: Row) -> None:
        """Raise `Forbidden` for an agent while all agents are stopped."""
        if caller["scope"] == "agent" and (stop := AgentStop.current.one()):
            raise Forbidden(f"{stop['by']['full_name']} has stopped all agents: {stop['reason']}")

    @staticmethod
    def filters(caller: Row) -> Row:
        """Return a further filter of the tasks that are ready for the caller."""
        return {"for_agents": True} if caller["scope"] == "agent" else {}

    @staticmethod
    def counted(transaction: Transaction, stored: Row, changes: Row) -> Row:
        """Return the column `tries` of a task, if these changes change it.

        A try is what an agent began and then gave back, lost with the end of its claim, or submitted and got
        back. The sweeper, which ends claims, acts without a key. A person who imports does so too, but
        notifies nobody. With any other change a person has helped, and agents may try again. Raises
        `Forbidden` for an agent that begins or submits a stuck task.
        """
        (old, status), tries = changes.get("status", (None, None)), stored["tries"]
        is_agent = transaction.actor.get("scope") == "agent"
        if is_agent and tries >= MAX_TRIES and old == "todo":
            stuck = f"agents have tried #{stored['number']} {tries} times without a result"
            raise Forbidden(f"{stuck}; a person changes or reassigns it first")
        is_person = not is_agent and (transaction.has_key or not transaction.notifies)
        is_sent_back = old == "review" and status != "done" and "assignee_id" not in changes
        is_sent_back = is_sent_back and not transaction.undoes
        ends_try = is_sent_back if is_person else status == "todo"
        if ends_try:
            last = Activity.last_change.one(task_id=stored["id"], path="$.status") or {}
            return {"tries": tries + 1} if last.get("scope") == "agent" else {}
        return {"tries": 0} if is_person and changes and tries else {}

    @staticmethod
    def is_stuck(task: Row) -> bool:
        return task["status"] == "todo" and task["tries"] >= MAX_TRIES

    @classmethod
    def notify_stuck(cls, transaction: Transaction, stored: Row, task: Row) -> None:
        """Notify the person responsible for a task that is stuck now."""
        if task["tries"] < stored["tries"]:
            Task.notices.settle(transaction, task, {"tries": [stored["tries"], 0]})
        if cls.is_stuck(task) and not cls.is_stuck(stored):
            if not transaction.has_key:  # the sweeper ends the claim of an agent
                transaction = Transaction(transaction.actor | {"scope": "agent"}, transaction.request_id)
            Task.notices.notify(transaction, task, "stuck", *Task.notices.responsible(transaction, task))


ApiKey.brakes = Brakes
FILTERS["for_agents"] = (Task.tries < MAX_TRIES) & ~fn.EXISTS(AgentStop.select(SQL("1")))


class StopInput(schemas.Strict):
    reason = schemas.Text(500, required=True, **schemas.doc("Agents and the team read it."))

    EXAMPLE = {"reason": "Some titles are wrong; Ana looks into it."}


_shown = schemas.shown(AgentStop, "reason created_at by", by=schemas.ProfileShown)
AgentStopStateShown = schemas.response_schema("AgentStopState", stop=_shown | None)


@api.get("/agents/stop")
@operation(gives=AgentStopStateShown, role="member")
def get_agent_stop() -> Row:
    """Show who has stopped all agents, when and why; null if nobody has."""
    return {"stop": AgentStop.current.one()}


@api.post("/agents/stop")
@operation(StopInput(), AgentStopStateShown, role="admin")
def stop_agents(transaction: Transaction, reason: str) -> Row:
    """Stop all agents: keys of scope `agent` then only read, call no tool, and find no task that is ready."""
    return AgentStop.put(transaction, reason)


@api.post("/agents/start")
@operation(gives=AgentStopStateShown, role="admin")
def start_agents(transaction: Transaction) -> Row:
    """Let agents go on after a stop."""
    return AgentStop.put(transaction, None)


@cli.command()
@click.argument("action", type=click.Choice(["stop", "start"]))
@click.argument("reason", required=False)
@as_option
@in_database
def agents(action: str, reason: str | None, email: str | None) -> None:
    """Stop all agents, which get the REASON, or let them go on (start)."""
    schema = StopInput() if action == "stop" else schemas.NOTHING
    reason = load_fields(schema, reason=reason).get("reason")
    with write(fetch_actor(email, "admin")) as transaction:
        AgentStop.put(transaction, reason)
    click.echo("All agents are stopped." if reason else "Agents go on.")
