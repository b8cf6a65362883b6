"""Whom a comment names with @, which is resolved when the comment is written."""

import pytest
from harness import last_event
from test_inbox import comment
from test_members import invite

NEEDS_SOCKET = False


@pytest.fixture(scope="module")
def workspace(server, owner):
    """Members whose names need care: their clients by name."""
    names = ["Ana Lima", "Ana Silva", "Ben Ito", "Jörg-Peter Weiß", "Bot", "Bot Two", "Zoë O'Neil", "Ben Ben"]
    clients = {"Olga Owner": owner} | {name: server.join(full_name=name) for name in names}
    return clients | {"Carl Client": server.join("client", full_name="Carl Client")}


def named_in(workspace, ids):
    names = {client.member["id"]: name for name, client in workspace.items()}
    return [names[id] for id in ids]


OLGA, ZOË = ["Olga Owner"], ["Zoë O'Neil"]
NOBODY = ["@Ana has two bearers", "@Ana Limax", "@Jörg", "@Ben", "@Ben Ito_", "@@Olga", "@ Olga", "@"]
NOBODY += ["@Nobody Here", "write to ben@Zoë.example, x@Olga"]
NOBODY.append("@Zoe")  # accents count
NOBODY.append("@Carl")  # a client
NOBODY.append("```\n@Zoë")  # code to the end
NOBODY.append("@x " * 50 + "@Olga")  # the 51st sign
TEXTS = dict.fromkeys(NOBODY, []) | {
    **dict.fromkeys(["@Ana Lima, please", "@ana lima"], ["Ana Lima"]),
    "(@Ana Lima) and @ANA SILVA!": ["Ana Lima", "Ana Silva"],
    **dict.fromkeys(["@Zoë", "@Zoe\u0308's turn", "@zoë o'neil, @zoë"], ZOË),  # one of them decomposed
    **dict.fromkeys(["@Jörg-Peter WEISS", "@Jörg-Peter"], ["Jörg-Peter Weiß"]),
    # The full name of one, and the first name of two.
    **dict.fromkeys(["@Bot", "@Bot Three"], ["Bot"]),
    "@Bot Two": ["Bot Two"],
    **{"@Ben Ben": ["Ben Ben"], "@Ben Ito.": ["Ben Ito"], "@Carl Client": ["Carl Client"]},
    "**@Olga**, `x` and\n@Zoë": OLGA + ZOË,
    **dict.fromkeys(
        [
            "`@Zoë`, ``a ` @Zoë``, ```@Zoë``` @Olga",
            "```python\n@Zoë\ndef f()\n```\n@Olga",
            "- ~~~\n  @Zoë\n  ~~~\n- @Olga",
            "Thus:\n\n    @Zoë\n    def f()\n\n@Olga",
            "1. Ask\n    @Olga",  # a paragraph goes on
            "> @Zoë said so\n@Olga",
            "https://example.com/@Zoë, www.example.com/@Zoë @Olga",
            "[@Zoë](https://example.com) [here](/of/@Zoë) (@Olga)",
            "<!-- @Zoë\n--> @Olga",
            "- [ ] @Olga [x]",
            "`" * 10_000 + "`a" * 10_000 + "](" * 5_000 + "@Olga",
            "@x " * 49 + "@Olga",
        ],
        OLGA,
    ),
    r"\@Zoë \\@Olga \`@Bot\`": [*OLGA, "Bot"],
}


def test_a_text_names_by_the_full_name_or_by_a_first_name_that_one_has(workspace, task):
    for text, names in TEXTS.items():
        said = comment(workspace["Carl Client"], task, text)
        assert named_in(workspace, said["mentions"]) == names, text


def test_a_comment_keeps_whom_it_named_though_names_change(server, workspace, owner, task):
    ben = workspace["Ben Ito"]
    made = comment(owner, task, "@Ben Ito")
    event = last_event(server)
    assert (event["event"], event["data"]["comment"]["mentions"]) == ("comment.added", [ben.member["id"]])
    owner.data(owner.patch(f"/members/{ben.member['id']}", {"full_name": "Benedict Ito"}))
    (listed,) = owner.read(f"/tasks/{task['id']}/comments")["comments"]
    assert listed["mentions"] == made["mentions"] == [ben.member["id"]]
    assert ben.member["id"] not in comment(owner, task, "@Ben Ito")["mentions"]
    owner.data(owner.patch(f"/members/{ben.member['id']}", {"full_name": "Ben Ito"}))


def test_mentions_skip_removed_members_and_find_invited_ones(workspace, owner, task):
    ivy = invite(owner, "ivy@example.com", full_name="Ivy Invited")["member"]
    assert comment(owner, task, "@Ivy")["mentions"] == [ivy["id"]]
    owner.data(owner.delete(f"/members/{ivy['id']}"))
    assert comment(owner, task, "@Ivy")["mentions"] == []
    # A client takes no name of the team.
    client = workspace["Carl Client"]
    for name in ("Olga", "Olga Owner"):
        client.data(client.patch(f"/members/{client.member['id']}", {"full_name": name}))
        assert named_in(workspace, comment(client, task, f"@{name}")["mentions"]) == ["Olga Owner"]
    client.data(client.patch(f"/members/{client.member['id']}", {"full_name": "Carl Client"}))
