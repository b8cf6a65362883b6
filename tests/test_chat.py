"""Webhooks in the formats of Slack and Discord, and URLs that are secrets."""

import json
from html import escape
from zoneinfo import ZoneInfo

import pytest
from harness import EVERY_EVENT, PATIENT, invoke

import times
from outbox import ALL_EVENTS
from parts.chats import SENTENCES, sentence

NEEDS_SOCKET = False

MEAN = "<b> & *T*\n@everyone [x](http://y) `_~|"


@pytest.fixture(scope="module")
def chats(launch_here_module, make_receiver):
    """A server that tells a Slack, a Discord, and a receiver of ours of everything."""
    receivers = {name: make_receiver().up() for name in ("slack", "discord", "signed")}
    of = {"events": EVERY_EVENT}
    hooks = [of | {"name": name, "url": one.url, "format": name} for name, one in receivers.items()]
    hooks[2] |= {"format": "slack", "secret": "a-secret"}
    settings = {"TASKS_WEBHOOKS": json.dumps(hooks), "TASKS_SERVER__BASE_URL": "https://tasks.example.com/a"}
    return launch_here_module(**PATIENT, **settings), receivers


@pytest.fixture
def owner(chats):
    for receiver in chats[1].values():
        receiver.all_here()
    return chats[0].client()


def texts(chats):
    """Return the messages in Slack and Discord since the last call."""
    slack = [call.event for call in chats[1]["slack"].all_here()]
    discord = [call.event for call in chats[1]["discord"].all_here()]
    assert {tuple(body) for body in slack} == {("text", "blocks")}
    for body in slack:  # people see the blocks: they say all that the text says, in the same order
        (section,) = body["blocks"][0]["elements"]
        pieces = [(one.get("url"), escape(one["text"], quote=False)) for one in section["elements"]]
        assert "".join(f"<{url}|{text}>" if url else text for url, text in pieces) == body["text"]
    assert {tuple(body) for body in discord} == {("content", "allowed_mentions")}
    assert {str(body["allowed_mentions"]) for body in discord} == {"{'parse': []}"}
    return [body["text"] for body in slack], [body["content"] for body in discord]


def test_each_event_and_a_ping_is_a_line_with_a_link_to_its_task(chats, owner):
    assert SENTENCES.keys() == set(ALL_EVENTS)
    task = owner.make_task(owner.make_project(), title="Ship_it")
    path, url = f"/tasks/{task['id']}", f"https://tasks.example.com/a/#task={task['id']}"
    owner.patch(f"{path}/details", {"status": "in_progress", "description": "Long", "due_date": "2026-12-01"})
    owner.post(f"{path}/complete")
    owner.post(f"{path}/comments", {"content": "Well\n done"})
    owner.delete(path)
    chats[0].join(full_name="Ana")
    slack, discord = texts(chats)
    link = {"type": "link", "url": url, "text": "Ship_it"}
    elements = [{"type": "text", "text": "Olga Owner created "}, link]
    section = {"type": "rich_text_section", "elements": elements}
    assert chats[1]["signed"].next().event["blocks"] == [{"type": "rich_text", "elements": [section]}]
    said = ["Olga Owner created {}", "Olga Owner changed {}: status: in progress, description, due date"]
    said += ["Olga Owner completed {}", "Olga Owner commented on {}: Well done"]
    said += ["Olga Owner deleted the task Ship_it", "Olga Owner invited Ana", "Ana joined"]
    assert slack == [text.format(f"<{url}|Ship_it>") for text in said]
    assert discord[0] == f"Olga Owner created [Ship\\_it](<{url}>)"
    assert discord[1].endswith(">): status: in progress, description, due date")
    for webhook in owner.read("/webhooks")["webhooks"]:
        assert webhook["url"].endswith("/…")  # in this format, the path is a secret
        owner.post(f"/webhooks/{webhook['id']}/test")
    assert texts(chats) == tuple([f"This is a test of the webhook {name}."] for name in ("slack", "discord"))


def test_texts_of_people_are_escaped_for_chats(chats, owner):
    task = owner.make_task(owner.make_project())
    texts(chats)
    owner.post(f"/tasks/{task['id']}/comments", {"content": MEAN + "x" * 5000})
    *_, content = chats[1]["signed"].all_here()[-1].event["blocks"][0]["elements"][0]["elements"]
    assert content["type"] == "text"  # which Slack shows as it stands
    assert content["text"].startswith(": <b> & *T* @everyone [x](http://y) `_~|xxx")
    (slack,), (discord,) = texts(chats)
    assert ": &lt;b&gt; &amp; *T* @everyone [x](http://y) `_~|xxx" in slack
    assert r": \<b\> & \*T\* \@everyone \[x\]\(http\://y\) \`\_\~\|xxx" in discord
    assert slack.endswith("xx…")
    assert "\n" not in slack + discord
    assert len(discord) < 2000


def test_a_due_date_that_is_in_the_year_10000_in_the_time_zone_is_shown_in_utc(monkeypatch):
    monkeypatch.setattr(times, "zone", ZoneInfo("Asia/Tokyo"))
    task = {"id": "1", "title": "Wait", "due_date": "9999-12-31T20:00:00.000Z"}
    event = {"event": "task.due", "actor": None, "data": {"task": task}}
    assert sentence(event, "", str, "{1}".format) == "Wait is due 9999-12-31 20:00 (UTC)"


def test_a_chat_needs_no_secret_and_with_one_it_is_signed(chats, owner):
    owner.make_task(owner.make_project())
    plain, signed = ({name.lower() for name in chats[1][one].next().headers} for one in ("slack", "signed"))
    assert {"webhook-id", "x-service-event", "content-type"} < plain
    assert signed - plain == {"webhook-signature", "x-service-signature"}


def test_a_url_that_is_a_secret_is_shown_up_to_its_host(launch_here, new_receiver, tmp_path):
    receiver = new_receiver()  # it is down, so that there are errors to show
    url = f"{receiver.url}/services/T0/S3CRET-PATH?token=S3CRET-QUERY"
    vault = tmp_path / "vault.json"
    vault.write_text(json.dumps({"url": url}))
    vault.chmod(0o600)
    reference = {"source": "file", "provider": "vault", "id": "/url"}
    hooks = [{"name": format, "format": format} for format in ("json", "slack")]
    hooks = [entry | {"secret": "s", "events": ["task.created"], "url": reference} for entry in hooks]
    config = f'[secrets.providers.vault]\nsource = "file"\npath = "{vault}"\n'
    server = launch_here(config=config, TASKS_WEBHOOKS=json.dumps(hooks), **PATIENT)
    owner = server.client()
    owner.make_task(owner.make_project())
    webhooks = owner.read("/webhooks")["webhooks"]
    assert [webhook["url"] for webhook in webhooks] == [receiver.url.removesuffix("hook") + "…"] * 2
    deliveries = owner.read("/deliveries")["deliveries"]
    assert ["refused" in delivery["last_error"] for delivery in deliveries] == [True, True]
    receiver.up()
    for webhook in webhooks:
        assert owner.data(owner.post(f"/webhooks/{webhook['id']}/test"))["status"] == "delivered"
        assert receiver.next().path == "/hook/services/T0/S3CRET-PATH?token=S3CRET-QUERY"
    shown = [invoke(server, "webhook", "list"), invoke(server, "doctor")]
    assert "slack" in shown[0].stdout
    texts = [server.log.read_text(), *(f"{one.stdout}{one.stderr}" for one in shown)]
    texts += [owner.get(path).text for path in ("/webhooks", "/deliveries", "/events", "/health")]
    assert "S3CRET" not in "".join(texts)
    assert str(server.rows("SELECT * FROM webhook")).count("S3CRET") == 0
