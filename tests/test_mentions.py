"""Whom a comment names with @, which is resolved when the comment is written."""

import pytest
from harness import last_event
from test_inbox import comment, emptied, unread


@pytest.fixture(scope="module")
def workspace(launch_module):
    """A server of its own, whose members have names that need care; their clients by name."""
    server = launch_module()
    owner = server.client()
    names = ["Ana Lima", "Ana Silva", "Ben Ito", "Jörg-Peter Weiß", "Bot", "Bot Two", "Zoë O'Neil", "Ben Ben"]
    clients = {"Olga Owner": owner}
    for number, name in enumerate([*names, "Carl Client"]):
        role = "client" if name == "Carl Client" else "member"
        words = ["member", "add", name, "--role", role, "--email", f"m{number}@example.com"]
        clients[name] = server.client(server.flask(*words).stdout.strip())
    for name, client in clients.items():
        client.member = owner.data(client.get("/me"))["member"]
        assert client.member["full_name"] == name
    clients["Olga Owner"].server = server
    return clients


@pytest.fixture
def task(workspace):
    return workspace["Olga Owner"].make_task(workspace["Olga Owner"].make_project())


def named_in(workspace, ids):
    names = {client.member["id"]: name for name, client in workspace.items()}
    return [names[id] for id in ids]


TEXTS = {
    "@Ana Lima, please": ["Ana Lima"],
    "@ana lima": ["Ana Lima"],
    "(@Ana Lima) and @ANA SILVA!": ["Ana Lima", "Ana Silva"],
    "@Ana has two bearers": [],
    "@Ana Limax": [],
    "@Zoë": ["Zoë O'Neil"],
    "@Zoe\u0308's turn": ["Zoë O'Neil"],  # decomposed
    "@Zoe": [],  # accents count
    "@zoë o'neil, @zoë": ["Zoë O'Neil"],
    "@Jörg-Peter WEISS": ["Jörg-Peter Weiß"],
    "@Jörg-Peter": ["Jörg-Peter Weiß"],
    "@Jörg": [],
    "@Bot": ["Bot"],  # the full name of one, and the first name of two
    "@Bot Two": ["Bot Two"],
    "@Bot Three": ["Bot"],
    "@Ben": [],
    "@Ben Ben": ["Ben Ben"],
    "@Ben Ito.": ["Ben Ito"],
    "@Ben Ito_": [],
    "@Carl": [],  # a client
    "@Carl Client": ["Carl Client"],
    "write to ben@Zoë.example, x@Olga": [],
    "@@Olga": [],
    "**@Olga**, `x` and\n@Zoë": ["Olga Owner", "Zoë O'Neil"],
    "`@Zoë`, ``a ` @Zoë``, ```@Zoë``` @Olga": ["Olga Owner"],
    "```python\n@Zoë\ndef f()\n```\n@Olga": ["Olga Owner"],
    "- ~~~\n  @Zoë\n  ~~~\n- @Olga": ["Olga Owner"],
    "```\n@Zoë": [],  # to the end
    "Thus:\n\n    @Zoë\n    def f()\n\n@Olga": ["Olga Owner"],
    "1. Ask\n    @Olga": ["Olga Owner"],  # a paragraph goes on
    "> @Zoë said so\n@Olga": ["Olga Owner"],
    "https://example.com/@Zoë, www.example.com/@Zoë @Olga": ["Olga Owner"],
    "[@Zoë](https://example.com) [here](/of/@Zoë) (@Olga)": ["Olga Owner"],
    "<!-- @Zoë\n--> @Olga": ["Olga Owner"],
    r"\@Zoë \\@Olga \`@Bot\`": ["Olga Owner", "Bot"],
    "- [ ] @Olga [x]": ["Olga Owner"],
    "`" * 10_000 + "`a" * 10_000 + "](" * 5_000 + "@Olga": ["Olga Owner"],
    "@ Olga": [],
    "@": [],
    "@Nobody Here": [],
    "@x " * 49 + "@Olga": ["Olga Owner"],
    "@x " * 50 + "@Olga": [],  # the 51st sign
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_names_by_the_full_name_or_by_a_first_name_that_one_has(workspace, task, text):
    made = comment(workspace["Carl Client"], task, text)
    assert named_in(workspace, made["mentions"]) == TEXTS[text]


def test_a_comment_keeps_whom_it_named_though_names_change(workspace, task):
    owner, ben = workspace["Olga Owner"], workspace["Ben Ito"]
    made = comment(owner, task, "@Ben Ito")
    event = last_event(owner.server)
    assert (event["event"], event["data"]["comment"]["mentions"]) == ("comment.added", [ben.member["id"]])
    owner.data(owner.patch(f"/members/{ben.member['id']}", {"full_name": "Benedict Ito"}))
    (listed,) = owner.data(owner.get(f"/tasks/{task['id']}/comments"))["comments"]
    assert listed["mentions"] == made["mentions"] == [ben.member["id"]]
    assert ben.member["id"] not in comment(owner, task, "@Ben Ito")["mentions"]
    owner.data(owner.patch(f"/members/{ben.member['id']}", {"full_name": "Ben Ito"}))


def test_an_edited_comment_tells_whom_it_newly_names(workspace, task):
    owner = emptied(workspace["Olga Owner"])
    zoë, bot = emptied(workspace["Zoë O'Neil"]), emptied(workspace["Bot"])
    made = comment(owner, task, "@Zoë")
    emptied(zoë)
    path = f"/tasks/{task['id']}/comments/{made['id']}"
    changed = owner.data(owner.patch(path, {"content": "@Zoë and @Bot and @Olga"}))
    assert named_in(workspace, changed["mentions"]) == ["Zoë O'Neil", "Bot", "Olga Owner"]
    assert unread(zoë) == []
    assert unread(bot, "excerpt") == [("mentioned", "@Zoë and @Bot and @Olga")]
    assert unread(owner) == []


def test_who_was_removed_is_not_named_and_who_is_invited_is(workspace, task):
    owner = workspace["Olga Owner"]
    body = {"email": "ivy@example.com", "full_name": "Ivy Invited", "role": "member"}
    ivy = owner.data(owner.post("/members/invite", body), 201)["member"]
    assert comment(owner, task, "@Ivy")["mentions"] == [ivy["id"]]
    owner.data(owner.delete(f"/members/{ivy['id']}"))
    assert comment(owner, task, "@Ivy")["mentions"] == []


def test_a_client_takes_no_name_of_the_team(workspace, task):
    client = workspace["Carl Client"]
    for name in ("Olga", "Olga Owner"):
        client.data(client.patch(f"/members/{client.member['id']}", {"full_name": name}))
        assert named_in(workspace, comment(client, task, f"@{name}")["mentions"]) == ["Olga Owner"]
    client.data(client.patch(f"/members/{client.member['id']}", {"full_name": "Carl Client"}))
