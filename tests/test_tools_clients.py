"""The official client of the Model Context Protocol, and what a day with it costs a model in tokens."""

import asyncio
import json
import re
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from harness import OWNER_KEY, PATIENCE
from test_tools import NAMES

from parts import tools

MODERN, LEGACY = "2026-07-28", "2025-11-25"
MODES = {"auto": MODERN, "legacy": LEGACY, MODERN: MODERN}  # with the version that each agrees on


def run(work):
    """Run it in a thread of its own: in this one Playwright may have an event loop, of other tests."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@asynccontextmanager
async def connected(server, mode="auto", key=OWNER_KEY, **options):
    import httpx2  # these three take a second, which no process need spend that has other files
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    options = options or {"headers": {"Authorization": f"Bearer {key}"}}
    async with (
        httpx2.AsyncClient(**options, timeout=PATIENCE, trust_env=False) as http,
        Client(streamable_http_client(f"{server.base}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


async def use(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    (block,) = result.content
    assert not result.is_error, block.text
    return json.loads(block.text)


@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_uses_tools_and_stays_connected_after_errors(server, mode):
    from mcp.shared.exceptions import MCPError

    name = f"By the official client, {mode}"

    async def work():
        async with connected(server, mode) as client:
            assert client.protocol_version == MODES[mode]
            if mode != MODERN:  # which asks for nothing
                assert client.instructions.startswith(tools.INSTRUCTIONS)
            assert [tool.name for tool in (await client.list_tools()).tools] == NAMES
            assert (await use(client, "create_project", name=name))["id"]
            task = await use(client, "create_task", project=name, title="Ünïcödé ✓", assignee="me")
            claimed = await use(client, "claim_task", task_id=task["number"])
            assert (claimed["title"], claimed["status"]) == ("Ünïcödé ✓", "in_progress")
            assert (await client.list_prompts()).prompts == (await client.list_resources()).resources == []
            assert (await client.list_resource_templates()).resource_templates == []
            wrong = client.call_tool("no_such_tool", {}), client.read_resource("x:y"), client.get_prompt("x")
            for call in wrong:
                with pytest.raises(MCPError) as failure:
                    await call
                assert failure.value.error.code in (-32601, -32602)
                assert "upcoming" in await use(client, "list_meetings")
            refused = await client.call_tool("get_task", {"id": "x"})
            assert refused.is_error
            assert 'unknown argument "id"; accepted: task_id' in refused.content[0].text
            assert "Olga Owner" in (await use(client, "get_context"))["you"]

    run(work())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_is_told_that_its_key_is_wrong(server, mode):
    async def work():
        async with connected(server, mode, key="tms_wrong") as client:
            await client.list_tools()

    with pytest.raises(Exception) as failure:  # noqa: PT011 - a group, or one error
        run(work())
    error = failure.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert str(error) == "the API key does not exist, has expired or was revoked"


def parts_of(schema):
    yield schema
    for part in [*schema.get("properties", {}).values(), *filter(None, [schema.get("items")])]:
        yield from parts_of(part)


KEYWORDS = {"type", "description", "properties", "required", "items", "enum", "minimum", "maximum"}
# Clients refuse a definition for these reasons, and often all tools of the server with it.
DEMANDS = {
    "VS Code and OpenAI: an array has items": lambda part: part["type"] != "array" or part["items"]["type"],
    "OpenAI: an object has properties": lambda part: part["type"] != "object" or "properties" in part,
    "Cursor, Gemini: a type is no list": lambda part: isinstance(part["type"], str),
    "google-genai, Gemini: no other keyword": lambda part: part.keys() <= KEYWORDS,
    "Gemini: choices are texts": lambda part: (
        "enum" not in part or (part["type"] == "string" and all(isinstance(one, str) for one in part["enum"]))
    ),
    "Anthropic, OpenAI: names are short": lambda part: all(
        re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in part.get("properties", ())
    ),
    "OpenAI: texts are short": lambda part: len(part.get("description", "")) <= 1024,
}


def test_a_client_takes_every_tool_and_argument():
    for tool in tools.TOOLS.values():
        name, schema = tool.definition["name"], tool.definition["inputSchema"]
        assert re.fullmatch("[a-zA-Z0-9_-]{1,50}", name)  # with `mcp_tasks_` Cursor leaves out longer ones
        for part in parts_of(schema):
            assert [demand for demand, is_met in DEMANDS.items() if not is_met(part)] == [], (name, part)
            # Gemini's clients leave out an empty schema of a tool, but not one inside it.
            assert part is schema or part["type"] != "object" or part["properties"], (name, part)


@pytest.mark.long
def test_google_s_library_converts_every_definition(server):
    from google.genai._mcp_utils import mcp_to_gemini_tools

    async def work():
        async with connected(server) as client:
            return (await client.list_tools()).tools

    listed = run(work())
    converted = [one for tool in mcp_to_gemini_tools(listed) for one in tool.function_declarations]
    assert [one.name for one in converted] == NAMES
    for tool, one in zip(listed, converted, strict=True):
        assert (one.parameters.properties or {}).keys() == tool.input_schema["properties"].keys()


def tokens(value):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.11 and 3.12 warn of open_binary
        import bpe_openai  # which holds the vocabulary, and takes a second that few tests need spend
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return len(bpe_openai.get_encoding("o200k_base").encode(text))


MAILS = [
    ("The menu of the café", "Website relaunch", "high"),
    ("Photos for the front page", "Website relaunch", ""),
    ("Offline mode loses drafts", "Mobile app", "urgent"),
    ("Push messages in French", "Mobile app", "low"),
    ("Chairs for the new rooms", "Office move", ""),
    ("Keys of the printing house", "Office move", "high"),
    ("Interview with the bakery", "Accessibility audit", ""),
    ("Transcripts of last week", "Accessibility audit", "low"),
    ("Contrast of the buttons", "Website relaunch", "high"),
    ("Tables for screen readers", "Website relaunch", ""),
]


async def next_task(call):
    """Find the next task, do it, report."""
    line = (await call("get_context"))["overdue_or_urgent"][0]
    await call("claim_task", project=line.partition(" in ")[2].partition(",")[0])
    report = "The offline mode is simpler: it keeps drafts, and sends them when there is a network."
    await call("complete_task", task_id=line.split()[0], comment=report)


async def next_described_task(call):
    """The same with a description, rules of its project, and what people have said about it."""
    await call("get_context")
    task = await call("claim_task", project="Bakery")
    assert len(task["comments"]) == 3
    assert "about_project" in task
    report = "The form now keeps what was typed; the test is in test_order.py. I changed nothing else."
    await call("complete_task", task_id=task["number"], comment=report)


async def ten_mails(call):
    """Ten e-mails become tasks, unless there is one already."""
    for title, project, priority in MAILS:
        await call("find_tasks", q=title.rpartition(" ")[2], project=project, status="open", limit=3)
        chosen = {"priority": priority} if priority else {}
        await call("create_task", project=project, title=title, description=f"By mail: {title}.", **chosen)


async def ten_mails_at_once(call):
    """Ten e-mails become tasks in one call, each with its words."""
    mails = [{"title": title, "description": f"{WORDS} It is about: {title}."} for title, *_ in MAILS]
    done = await call("create_task", project="Website relaunch", **mails[0], more=mails[1:])
    assert len(done["done"]) == 10


async def summary(call):
    """Report finished and late work, and the state of each project."""
    context = await call("get_context")
    week = {"completed_since": "2026-01-01", "sort": "-updated_at", "limit": 15}
    await call("find_tasks", **week)
    await call("find_tasks", status="open", due_before=context["now"][:10], sort="due_date", limit=10)
    for line in context["projects"][:3]:
        await call("get_project", project=line.partition(":")[0])


async def weekly_report(call):
    """List what was done, is open, is late, and is new: about 170 tasks."""
    lists = [{"status": "done"}, {"status": "open"}, {"status": "open", "due_before": "2099-01-01"}, {}]
    found = [await call("find_tasks", **asked, limit=most) for asked, most in zip(lists, MOST, strict=True)]
    assert sum(len(lines) for one in found for lines in one["tasks"].values()) == sum(MOST)


MOST = (44, 50, 29, 50)  # as in a week of the demonstration workspace
WORDS = "A customer asks for a change before Friday."
RULES = """Work on a branch of its own. Write a test first, and run all of them before you report. Keep the
texts plain, and ask before you add a library. Customers see the staging site, so publish nothing there on
Fridays. Say in your report what you changed, and what you left as it was. Prices have two decimals."""
DESCRIPTION = """A customer who orders a cake and goes back to the list of cakes loses the message, as typed.
The form has to keep it until the order is sent, also when the page is loaded again. It is enough to keep it
in this browser. See that it works without JavaScript as before, and that nothing is kept after the order. The
page is templates/order.html, and the form is sent to /orders. Add a test for both."""
SAYINGS = [
    "I saw it too, with Firefox on a phone. It happens each time when one goes back from the list of cakes.",
    "Please do not keep the address, only the message. The address is personal, and others use the phone.",
    "Agreed. Ana said that the old form kept it for a day, which was long enough for everybody who asked.",
]


# The demonstration workspace, with the definitions and the instructions that a model reads before.
FLOWS = {next_task: 1700, next_described_task: 2000, ten_mails: 2300, ten_mails_at_once: 1500}
FLOWS |= {summary: 2700, weekly_report: 4000}


@pytest.mark.long
def test_a_day_costs_few_tokens(launch, capsys):
    server = launch()
    assert server.flask("seed", "--seed", "7").returncode == 0
    owner, agent = server.client(), server.agent("Build agent")
    project = owner.make_project(name="Bakery", description=RULES)
    task = owner.make_task(project, title="Keep the message of an order", description=DESCRIPTION)
    for saying in SAYINGS:
        owner.make(f"/tasks/{task['id']}/comments", {"content": saying})

    async def day(work):
        costs = Counter()
        async with connected(server, key=agent.key) as client:

            async def call(tool, **arguments):
                answer = await use(client, tool, **arguments)
                costs[tool] += tokens({"name": tool, "arguments": arguments}) + tokens(answer)
                return answer

            costs["instructions"] = tokens(client.instructions)
            for tool in (await client.list_tools()).tools:
                # Annotations are for clients; models do not read them.
                definition = tool.model_dump(by_alias=True, exclude_none=True, exclude={"annotations"})
                costs["definitions"] += tokens(definition)
            await work(call)
        return costs

    for work, most in FLOWS.items():
        costs = run(day(work))
        with capsys.disabled():
            print(f"\n{work.__doc__} {costs.total()} tokens: {dict(costs)}")
        assert costs.total() < most, work
