"""What the sweeper sends to whom, and in which order, when receivers are slow, hang, or are many."""

import json
import threading
from pathlib import Path

import pytest
from conftest import hook

import models
import webhooks
from models import Endpoint, db, write

SLOW = {"TASKS_DELIVERY__TIMEOUT_SECONDS": "60", "TASKS_DELIVERY__REQUEST_BUDGET_SECONDS": "0"}


@pytest.fixture
def let_go():
    """Hold up receivers until the end of the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def sweeper(tmp_path, monkeypatch):
    """Start a sweeper in this process, with these webhooks and a database of its own."""
    monkeypatch.setattr(webhooks, "settings", webhooks.Settings({}))
    monkeypatch.setattr(webhooks, "stopping", threading.Event())
    db.init(str(tmp_path / "unit" / "tasks.db"), timeout=5)
    models.prepare()
    made = webhooks.Sweeper(Path(f"{db.database}.sender"))

    def start(*hooks, leave):
        """Note the webhooks, leave so many events for each, and sweep."""
        settings = {"request_budget_seconds": 0, "timeout_seconds": 30, "retry_schedule": [5]}
        with write() as change:
            Endpoint.mirror(change, [entry | {"secrets": ["s"]} for entry in hooks])
        webhooks.configure(
            [entry | {"secrets": ["s"]} for entry in hooks], settings | {"keep_days": 30, "ca_file": None}
        )
        with write({"id": "1", "full_name": "A", "email": "a@example.com", "role": "owner"}) as change:
            for number in range(leave):
                webhooks.emit(change, "task.created", {"number": number})
        made.start()
        return made

    yield start
    made.stop()
    made._file.close()
    db.close()


def test_receivers_that_hang_do_not_hold_up_one_that_answers(launch, new_receiver, let_go):
    hanging, well = [new_receiver().up() for _ in range(8)], new_receiver().up()
    for receiver in hanging:
        receiver.answer = lambda call: let_go.wait(60) and 200
    hooks = [hook(receiver, name=f"hanging {number}") for number, receiver in enumerate(hanging)]
    server = launch(TASKS_WEBHOOKS=json.dumps([*hooks, hook(well, name="well")]), **SLOW)
    owner = server.client()
    project = owner.make_project()
    for number in range(30):
        owner.make_task(project, title=str(number))
    titles = [well.next().event["data"]["task"]["title"] for _ in range(30)]
    assert titles == [str(number) for number in range(30)]
    for receiver in hanging:
        assert len(receiver.all_here()) == 1  # which it still holds


def test_with_more_receivers_than_places_each_gets_a_batch_in_turn(sweeper, new_receiver, monkeypatch):
    monkeypatch.setattr(webhooks, "DRAINS", 1)
    monkeypatch.setattr(webhooks, "BATCH", 2)
    arrived, enough = [], threading.Event()

    def noted(name):
        def answer(call):
            arrived.append(name)
            if len(arrived) == 12:
                enough.set()
            return 200

        return answer

    receivers = {name: new_receiver().up() for name in "ABC"}
    for name, receiver in receivers.items():
        receiver.answer = noted(name)
    sweeper(*[hook(receiver, name=name) for name, receiver in receivers.items()], leave=4)
    assert enough.wait(20)
    rounds = "".join(arrived[:6]), "".join(arrived[6:])
    assert sorted(rounds[0]) == sorted(rounds[1]) == list("AABBCC")
    assert rounds[0] == rounds[1]
    assert {rounds[0][at : at + 2] for at in (0, 2, 4)} == {"AA", "BB", "CC"}
