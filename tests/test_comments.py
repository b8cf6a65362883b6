"""Comments of a task."""

import pytest
from harness import INSTANT, NOBODY, UUID, add_old_comments, fault, last_event

NEEDS_SOCKET = False


def add(client, task, content):
    return client.make(f"/tasks/{task['id']}/comments", {"content": content})


def listed(client, task, **query):
    return client.read(f"/tasks/{task['id']}/comments", **query)


@pytest.fixture
def comment(owner, task):
    return add(owner, task, "Draught")


def path(comment):
    return f"/tasks/{comment['task_id']}/comments/{comment['id']}"


def test_a_comment_is_added_with_its_author(task, join):
    client = join("client")
    comment = add(client, task, " Two\nlines, 🎉 ")
    assert UUID.fullmatch(comment.pop("id"))
    assert INSTANT.fullmatch(comment.pop("created_at"))
    by = {"author": {name: client.member[name] for name in ("id", "full_name", "email", "role")}}
    by |= {"author_id": client.member["id"], "via": "enrollment"}
    shown = {"task_id": task["id"], "content": " Two\nlines, 🎉 ", "mentions": [], "edited_at": None}
    assert comment == by | shown


def page(limit=500, next_before=None):
    return {"limit": limit, "has_more": next_before is not None, "next_before": next_before}


def test_all_comments_are_listed_oldest_first_and_of_more_than_500_the_latest(server, owner, task):
    assert listed(owner, task) == {"comments": [], "pagination": page()}
    made = [add(owner, task, str(n)) for n in range(3)]
    assert listed(owner, task) == {"comments": made, "pagination": page()}
    assert listed(owner, task, limit=2) == {"comments": made[1:], "pagination": page(2, made[1]["id"])}
    older = add_old_comments(server, task, 500)
    latest = listed(owner, task)
    assert [comment["id"] for comment in latest["comments"]] == older[3:] + [each["id"] for each in made]
    assert latest["pagination"] == page(next_before=older[3])
    earlier = listed(owner, task, limit=400, before=older[403])
    assert [comment["id"] for comment in earlier["comments"]] == older[3:403]
    earlier = listed(owner, task, before=older[3])
    assert [comment["id"] for comment in earlier["comments"]] == older[:3]
    assert earlier["pagination"] == page()


def test_a_page_of_large_comments_ends_at_four_mebibytes(server, owner, task):
    older = add_old_comments(server, task, 100, "é" * 24_999)
    latest = listed(owner, task)  # of 50 000 bytes each, at most, in 4 MiB
    assert [comment["id"] for comment in latest["comments"]] == older[17:]
    earlier = listed(owner, task, before=latest["pagination"]["next_before"])
    assert [comment["id"] for comment in earlier["comments"]] == older[:17]
    assert earlier["pagination"] == page()


def newest_activity(owner, comment):
    """The newest entry of the history of the comment's task, which is about the comment."""
    entry = owner.read(f"/tasks/{comment['task_id']}/activity")["activity"][0]
    assert (entry["entity"], entry["entity_id"]) == ("comment", comment["id"])
    return entry


def test_its_author_corrects_a_comment(owner, task, comment):
    before = owner.read(f"/tasks/{task['id']}")
    for body in ({}, {"content": comment["content"]}):  # which change nothing
        assert owner.data(owner.patch(path(comment), body)) == comment
    assert newest_activity(owner, comment)["action"] == "created"
    edited = owner.data(owner.patch(path(comment), {"content": "Draft"}))
    assert edited["edited_at"] >= comment["created_at"]
    assert edited == comment | {"content": "Draft", "edited_at": edited["edited_at"]}
    assert (listed(owner, task)["comments"], owner.read(f"/tasks/{task['id']}")) == ([edited], before)
    entry = newest_activity(owner, comment)
    assert (entry["action"], entry["title"]) == ("updated", task["title"])
    assert entry["changes"] == {"content": [None, None]}


def test_only_its_author_changes_a_comment_and_an_owner_or_admin_deletes_it_too(owner, join, task):
    author, admin, member = join("client"), join("admin"), join()
    comment = add(author, task, "Mine")
    for other in (owner, admin, member):
        answer = other.patch(path(comment), {"content": "Not mine"})
        assert "its author" in fault(answer, 403, "forbidden")["message"]
    assert author.data(author.patch(path(comment), {"content": "Still mine"}))["author"] == comment["author"]
    author.data(author.delete(path(comment)))
    for deleter in (author, admin, owner):
        comment = add(author, task, "A")
        fault(member.delete(path(comment)), 403, "forbidden")
        assert deleter.data(deleter.delete(path(comment))) == {"id": comment["id"], "deleted": True}
        fault(deleter.delete(path(comment)), 404, "not_found")
        assert newest_activity(owner, comment)["action"] == "deleted"
    assert (listed(owner, task)["comments"], owner.read(f"/tasks/{task['id']}")["comment_count"]) == ([], 0)


def test_a_correction_is_no_event_and_a_comment_is_found_at_its_own_task_only(server, owner, task, comment):
    event = last_event(server)
    assert (event["event"], event["data"]) == ("comment.added", {"comment": comment, "task": task})
    comment = owner.data(owner.patch(path(comment), {"content": "B"}))
    assert last_event(server) == event
    project = {"id": task["project_id"]}
    other = owner.make_task(project)
    for id in (comment["id"], NOBODY, "x"):
        wrong = f"/tasks/{other['id']}/comments/{id}"
        fault(owner.patch(wrong, {"content": "New"}), 404, "not_found")
        fault(owner.delete(wrong), 404, "not_found")
    assert listed(owner, task)["comments"] == [comment]
    before = last_event(server)
    owner.data(owner.delete(path(comment)))
    assert last_event(server) == before
