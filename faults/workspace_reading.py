"""What the model check of tasks reads: details, pages, the history, events; and all of it after a restart."""

from collections.abc import Iterable
from functools import partial
from itertools import combinations

from hypothesis import strategies as st
from workspace_choices import EQUALITIES
from workspace_input import ANYBODY, LOCATED, NUMBERS, SORTS, TEAM, queries
from workspace_machine import ComparedMachine, step
from workspace_shown import PRIORITIES, STATUSES, Row


class ReadingMachine(ComparedMachine):
    """What readers find, and what a server that was stopped or killed still has."""

    has_restarted = False

    @step()
    def look(self) -> None:
        """Do nothing: the comparison follows. Hypothesis repeats this rule in its first, simplest example."""

    @step("task", actor=ANYBODY, task=NUMBERS, tag=st.sampled_from(['"{0}"', '"x"', "*", 'W/"{0}"']))
    def read_task(self, actor: str, task: int, tag: str) -> None:
        """`If-None-Match` makes no difference: answers may not be stored."""
        id = self.choose.pick("task", task)
        header = {"If-None-Match": tag.format(self.model.rows["task"][id]["version"])}
        answer = self.stage.clients[actor].request("GET", f"/tasks/{id}", headers=header)
        self.compare(f"GET /tasks/{id} {header}", answer.json().get("data"), self.model.task_detail(id))

    @step(actor=ANYBODY, query=queries())
    def read_pages(self, actor: str, query: Row) -> None:
        """Follow the pages of a list to their end."""
        query = self.choose.resolved_query(query)
        offset: int | None = query.get("offset", 0)
        while offset is not None:
            query["offset"] = offset
            expected = self.model.task_list(self.stage.ids[actor], query)
            self.read(actor, "/tasks", expected, **query)
            offset = expected["pagination"]["next_offset"]

    @step(
        actor=TEAM,
        limit=st.integers(1, 8),
        names=st.lists(
            st.sampled_from(["entity", "actor_id", "since", "before", "task"]), unique=True, max_size=3
        ),
        number=NUMBERS,
    )
    def read_history(self, actor: str, limit: int, names: list[str], number: int) -> None:
        entries = self.model.history
        entry = entries[-1 - number % len(entries)]
        path, query = "/activity", {}
        if "task" in names and entry["task_id"] in self.model.rows["task"]:
            path = f"/tasks/{entry['task_id']}/activity"
            entries = [other for other in entries if other["task_id"] == entry["task_id"]]
        if "entity" in names:
            query["entity"] = entry["entity"]
            entries = [other for other in entries if other["entity"] == entry["entity"]]
        if "actor_id" in names:
            query["actor_id"] = entry["actor"]["id"]
            entries = [other for other in entries if other["actor"] == entry["actor"]]
        if "since" in names:
            query["since"] = entry["created_at"]
            entries = [other for other in entries if other["created_at"] >= entry["created_at"]]
        if "before" in names:
            query["before"] = entry["id"]
            entries = [other for other in entries if other["id"] < entry["id"]]
        shown = self.stage.data(actor, "GET", path, params=query | {"limit": limit})
        listed = [other for other in shown["activity"] if other["id"] > self.base_activity]
        what = f"GET {path} {query} limit {limit}"
        self.compare(what, listed, entries[::-1][:limit])
        if len(entries) > limit or path != "/activity":
            page = shown["pagination"]
            has_more = len(entries) > limit
            next_before = listed[-1]["id"] if has_more else None
            self.compare(what, page, {"limit": limit, "has_more": has_more, "next_before": next_before})

    @step(number=NUMBERS, limit=st.integers(1, 5))
    def read_events(self, number: int, limit: int) -> None:
        start = number % (len(self.calls) + 1)
        after = self.calls[start - 1]["id"] if start else self.base_event
        events = self.calls[start : start + limit]
        page = {
            "limit": limit,
            "has_more": start + limit < len(self.calls),
            "next_after": events[-1]["id"] if events else after,
        }
        expected = {"events": events, "pagination": page}
        self.read("owner", "/events", expected, after=after, limit=limit)

    @step(how=st.sampled_from(["SIGTERM", "kill -9", *["no"] * 6]))
    def restart(self, how: str) -> None:
        """End the server and start it again, at most once: it takes as long as many steps."""
        if how != "no" and not self.has_restarted:
            self.has_restarted = True
            self.steps.append(how)
            self.stage.restart(how)
            self.compare_all()

    def teardown(self) -> None:
        if not self.has_failed:
            with self.noticing_failures():
                self.compare_all()

    def compare_all(self) -> None:
        """Compare everything that there is."""
        model, files = self.model, self.model.files
        for sort in SORTS:
            expected = model.task_list("", {"sort": sort, "limit": 100})
            self.read("owner", "/tasks", expected, sort=sort, limit=100)
        values: dict[str, Iterable[str]] = {"status": STATUSES, "priority": PRIORITIES}
        values |= {"assignee_id": model.members}
        values |= {f"{kind}_id": model.rows[kind] for kind in ("project", "milestone")}
        for name, value in ((name, value) for name, some in values.items() for value in some):
            expected = model.task_list("", {name: value, "limit": 1})
            self.read("owner", "/tasks", expected, **{name: value}, limit=1)
        self.compare_combinations()
        for id in model.rows["task"]:
            self.compare_row("task", id)
            for part in ("comment", "attachment"):
                self.read("client", f"/tasks/{id}/{part}s", model.listed(part, task_id=id), key=f"{part}s")
        for id in files.keys() & model.rows["attachment"].keys():
            path = f"/tasks/{model.rows['attachment'][id]['task_id']}/attachments/{id}"
            answer = self.stage.clients["client"].request("GET", path)
            self.compare(f"GET {path}", answer.content.hex(), files[id].hex())
        for kind in LOCATED:
            for id in model.rows[kind]:
                self.compare_row(kind, id)
        for status in ("active", "archived"):
            listed = partial(model.projects, status=status)
            self.read("owner", "/projects", listed, key="projects", status=status)
        for id in model.rows["project"]:
            self.read("owner", f"/projects/{id}/milestones", model.milestones(id), key="milestones")
        for actor, id in self.stage.ids.items():
            self.read(actor, "/meetings", partial(model.meetings, id), key="meetings")
        self.read("owner", "/whiteboards", model.whiteboards(), key="whiteboards")
        self.read("owner", "/members", model.everyone(), key="members")
        self.read("owner", "/events", self.calls[:100], key="events", after=self.base_event, limit=100)

    def compare_combinations(self) -> None:
        """Compare lists with each two and three filters that a task passes, in an order of this example's."""
        tasks, turn = self.model.rows["task"], self.stage.turn
        if not tasks:
            return
        task = tasks[self.choose.pick("task", turn)]
        values = {name: task[name] for name in EQUALITIES if task[name] is not None}
        values |= {"q": task["title"][:1], "updated_since": min(row["updated_at"] for row in tasks.values())}
        if dates := [row["due_date"] for row in tasks.values() if row["due_date"]]:
            values["due_before"] = max(dates)
        page = {"sort": SORTS[turn % len(SORTS)], "limit": 3, "offset": turn % 2}
        for count in (2, 3):
            for some in combinations(values.items(), count):
                query = dict(some) | page
                self.read("member", "/tasks", self.model.task_list(self.stage.ids["member"], query), **query)
