"""The official client of the Model Context Protocol, and what a day with it costs a model in tokens."""

import asyncio
import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import httpx2
import pytest
from harness import OWNER_KEY, PATIENCE
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from test_tools import NAMES

import tools

MODERN, LEGACY = "2026-07-28", "2025-11-25"
MODES = {"auto": MODERN, "legacy": LEGACY, MODERN: MODERN}  # with the version that each agrees on


def run(work):
    """Run it in a thread of its own: in this one Playwright may have an event loop, of other tests."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@asynccontextmanager
async def connected(server, mode="auto", key=OWNER_KEY):
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False) as http,
        Client(streamable_http_client(f"{server.base}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


async def use(client, tool, **arguments):
    """What a tool answers to the official client."""
    result = await client.call_tool(tool, arguments)
    (block,) = result.content
    assert not result.is_error, block.text
    return json.loads(block.text)


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@pytest.fixture
def tokens():
    """The encoding o200k_base; its package holds the vocabulary, which tiktoken would download."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.11 and 3.12 warn of open_binary
        import bpe_openai  # takes seconds, which only these tests need to spend

        return bpe_openai.get_encoding("o200k_base")


@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_uses_every_tool(server, owner, mode):
    name = f"By the official client, {mode}"

    async def work():
        async with connected(server, mode) as client:
            assert client.protocol_version == MODES[mode]
            if mode != MODERN:  # which asks for nothing
                assert client.instructions.startswith(tools.INSTRUCTIONS)
            assert [tool.name for tool in (await client.list_tools()).tools] == NAMES
            await use(client, "create_project", name=name)
            task = await use(client, "create_task", project=name, title="Ünïcödé ✓", assignee="me")
            assert task["title"] == "Ünïcödé ✓"
            await use(client, "update_task", task_id=task["id"], status="in_progress", priority="high")
            await use(client, "add_comment", task_id=task["id"], content="Half of it")
            await use(client, "complete_task", task_id=task["id"], comment="All of it")
            shown = await use(client, "get_task", task_id=task["id"])
            assert [comment["text"] for comment in shown["comments"]] == ["Half of it", "All of it"]
            assert (await use(client, "find_tasks", project=name, status="done"))["total"] == 1
            assert (await use(client, "get_project", project=name))["statistics"]["done"] == 1
            assert "upcoming" in await use(client, "list_meetings")
            assert "Olga Owner" in (await use(client, "get_context"))["you"]

    run(work())


@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_stays_connected_after_errors(server, mode):
    async def work():
        async with connected(server, mode) as client:
            for call in (
                lambda: client.call_tool("no_such_tool", {}),
                lambda: client.list_resources(),
                lambda: client.get_prompt("none"),
            ):
                with pytest.raises(MCPError) as failure:
                    await call()
                assert failure.value.error.code in (-32601, -32602)
                assert "upcoming" in await use(client, "list_meetings")
            refused = await client.call_tool("get_task", {"id": "x"})
            assert refused.is_error
            assert 'unknown argument "id"; accepted: task_id' in refused.content[0].text
            assert "upcoming" in await use(client, "list_meetings")

    run(work())


@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_is_told_that_its_key_is_wrong(server, mode):
    async def work():
        async with connected(server, mode, key="tms_wrong") as client:
            await client.list_tools()

    with pytest.raises(Exception) as failure:  # noqa: PT011 - a group, or one error
        run(work())
    error = failure.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert str(error) == "the API key is unknown, or expired, or was revoked"


def test_an_agent_s_day(launch):
    """What is next, do it, report; meanwhile a person changes things, and a connection breaks."""
    server = launch()
    assert server.flask("seed").returncode == 0
    owner = server.client()
    members = {member["full_name"]: member for member in owner.data(owner.get("/members"))["members"]}
    body = {"name": "agent", "member_id": members["Jonas Weber"]["id"]}
    key = owner.data(owner.post("/keys", body), 201)["api_key"]

    async def morning():
        async with connected(server, key=key) as agent:
            context = await use(agent, "get_context")
            assert context["you"].startswith("Jonas Weber (member")
            task = context["urgent"][0]
            shown = await use(agent, "get_task", task_id=task["id"])
            # A person changes it meanwhile, so the agent looks again.
            owner.data(owner.patch(f"/tasks/{task['id']}", {"title": "Ask the client first"}))
            mine = {"task_id": task["id"], "assignee": "me", "status": "in_progress"}
            late = await agent.call_tool("update_task", mine | {"if_version": shown["version"]})
            assert late.is_error
            assert "get_task, look, and call again" in late.content[0].text
            shown = await use(agent, "get_task", task_id=task["id"])
            assert shown["title"] == "Ask the client first"
            started = await use(agent, "update_task", **mine, if_version=shown["version"])
            assert started["assignee"] == "Jonas Weber"
            return started

    async def afternoon(task):
        async with connected(server, "legacy", key=key) as agent:
            mine = await use(agent, "find_tasks", assignee="me", status="in_progress", limit=50)
            assert task["id"] in [row["id"] for row in mine["tasks"]]
            follow_up = {"project": "mobile", "title": "Tell the others", "assignee": "priya"}
            made = await use(agent, "create_task", **follow_up)
            again = await use(agent, "create_task", **follow_up)  # as after an answer that got lost
            assert again == made | {"already_made": True}
            done = await use(agent, "complete_task", task_id=task["id"], comment="Done, see the follow-up.")
            assert done["status"] == "done"
            found = await use(agent, "find_tasks", q="tell the others", assignee="Priya Raman")
            assert [row["id"] for row in found["tasks"]] == [made["id"]]

    task = run(morning())
    run(afternoon(task))
    shown = owner.data(owner.get(f"/tasks/{task['id']}"))
    assert (shown["status"], shown["assignee"]["full_name"]) == ("done", "Jonas Weber")
    comments = owner.data(owner.get(f"/tasks/{task['id']}/comments"))["comments"]
    assert comments[-1]["content"] == "Done, see the follow-up."
    assert comments[-1]["author"]["full_name"] == "Jonas Weber"


def test_the_tokens_are_counted_rightly(tokens):
    """By examples of the encoding's authors; and every text comes back."""
    for text, expected in {
        "antidisestablishmentarianism": [493, 129901, 376, 160388, 21203, 2367],
        "2 + 2 = 4": [17, 659, 220, 17, 314, 220, 19],
        "お誕生日おめでとう": [8930, 9697, 243, 128225, 8930, 17693, 4344, 48669],
        "tiktoken is great!": [83, 8251, 2488, 382, 2212, 0],
    }.items():
        assert tokens.encode(text) == expected
        assert tokens.decode(expected) == text


def test_what_next_do_it_report_takes_three_calls_and_few_tokens(launch, tokens, capsys):
    """Of the demonstration workspace, with the definitions and the instructions that a model reads before."""
    server = launch()
    assert server.flask("seed").returncode == 0
    costs = {}

    def cost(text):
        return len(tokens.encode(text))

    async def call(client, tool, **arguments):
        answer = await use(client, tool, **arguments)
        costs[tool] = cost(compact({"name": tool, "arguments": arguments})) + cost(compact(answer))
        return answer

    async def work():
        async with connected(server) as client:
            costs["instructions"] = cost(client.instructions)
            for tool in (await client.list_tools()).tools:
                definition = tool.model_dump(by_alias=True, exclude_none=True)
                costs["annotations"] = costs.get("annotations", 0) + cost(compact(definition))
                del definition["annotations"]  # which clients read, and models do not
                costs["definitions"] = costs.get("definitions", 0) + cost(compact(definition))
            costs["annotations"] -= costs["definitions"]
            task = (await call(client, "get_context"))["urgent"][0]
            await call(client, "update_task", task_id=task["id"], status="in_progress", assignee="me")
            report = "The offline mode is simpler: it keeps drafts, and sends them when there is a network."
            await call(client, "complete_task", task_id=task["id"], comment=report)

    run(work())
    total = sum(costs.values())
    with capsys.disabled():
        print(f"\nwhat next, do it, report: {total} tokens: {costs}")
    assert total < 2200
