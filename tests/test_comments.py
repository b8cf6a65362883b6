"""Comments of a task."""

import pytest
from harness import INSTANT, NOBODY, UUID, add_old_comments, fault


def test_a_comment_is_added_with_its_author(owner, task, join):
    client = join("client")
    answer = client.post(f"/tasks/{task['id']}/comments", {"content": " Two\nlines, 🎉 "})
    comment = client.data(answer, 201)
    assert UUID.fullmatch(comment.pop("id"))
    assert INSTANT.fullmatch(comment.pop("created_at"))
    author = {name: client.member[name] for name in ("id", "full_name", "email", "role")}
    assert comment == {
        "task_id": task["id"],
        "author_id": client.member["id"],
        "author": author,
        "content": " Two\nlines, 🎉 ",
        "edited_at": None,
    }


def page(limit=500, next_before=None):
    return {"limit": limit, "has_more": next_before is not None, "next_before": next_before}


def test_all_comments_are_listed_oldest_first_and_of_more_than_500_the_latest(server, owner, task):
    comments = f"/tasks/{task['id']}/comments"
    assert owner.data(owner.get(comments)) == {"comments": [], "pagination": page()}
    made = [owner.data(owner.post(comments, {"content": str(n)}), 201) for n in range(3)]
    assert owner.data(owner.get(comments)) == {"comments": made, "pagination": page()}
    older = add_old_comments(server, task, 500)
    listed = owner.data(owner.get(comments))
    assert [comment["id"] for comment in listed["comments"]] == older[3:] + [each["id"] for each in made]
    assert listed["pagination"] == page(next_before=older[3])
    earlier = owner.data(owner.get(comments, before=older[3]))
    assert [comment["id"] for comment in earlier["comments"]] == older[:3]
    assert earlier["pagination"] == page()


def test_of_comments_of_many_mebibytes_the_latest_are_listed(server, owner, task):
    comments = f"/tasks/{task['id']}/comments"
    older = add_old_comments(server, task, 100, "é" * 49_998)
    found, before = [], {}
    for count in (83, 17):  # of 50 000 characters each, at most, in 4 MiB
        listed = owner.data(owner.get(comments, **before))
        assert len(listed["comments"]) == count
        found = [comment["id"] for comment in listed["comments"]] + found
        before = {"before": listed["pagination"]["next_before"]}
    assert found == older
    assert listed["pagination"] == page()


def test_comments_are_listed_by_page_from_the_latest_on(owner, task):
    comments = f"/tasks/{task['id']}/comments"
    made = [owner.data(owner.post(comments, {"content": str(n)}), 201) for n in range(5)]
    latest = owner.data(owner.get(comments, limit=2))
    assert latest == {"comments": made[3:], "pagination": page(2, made[3]["id"])}
    assert owner.data(owner.get(comments, limit=3, before=made[3]["id"])) == {
        "comments": made[:3],
        "pagination": page(3),
    }
    for wrong in ({"limit": 501}, {"limit": 0}, {"before": "x"}, {"offset": 1}):
        fault(owner.get(comments, **wrong), 422, "validation_error", *wrong)


def test_a_blank_comment_is_refused(owner, task):
    for content in ("", " \n\t", None, 5):
        answer = owner.post(f"/tasks/{task['id']}/comments", {"content": content})
        fault(answer, 422, "validation_error", "content")
    fault(owner.post(f"/tasks/{task['id']}/comments", {}), 422, "validation_error", "content")
    assert owner.data(owner.get(f"/tasks/{task['id']}/comments"))["comments"] == []


def test_a_deleted_task_takes_no_comment(owner, task):
    owner.delete(f"/tasks/{task['id']}")
    fault(owner.post(f"/tasks/{task['id']}/comments", {"content": "x"}), 404, "not_found")


@pytest.fixture
def comment(owner, task):
    return owner.data(owner.post(f"/tasks/{task['id']}/comments", {"content": "Draught"}), 201)


def path(comment):
    return f"/tasks/{comment['task_id']}/comments/{comment['id']}"


def newest_activity(owner, comment):
    """The newest entry of the history of the comment's task, which is about the comment."""
    entry = owner.data(owner.get(f"/tasks/{comment['task_id']}/activity"))["activity"][0]
    assert (entry["entity"], entry["entity_id"]) == ("comment", comment["id"])
    return entry


def test_its_author_corrects_a_comment(owner, task, comment):
    before = owner.data(owner.get(f"/tasks/{task['id']}"))
    edited = owner.data(owner.patch(path(comment), {"content": "Draft"}))
    assert edited["edited_at"] >= comment["created_at"]
    assert edited == comment | {"content": "Draft", "edited_at": edited["edited_at"]}
    assert owner.data(owner.get(f"/tasks/{task['id']}/comments"))["comments"] == [edited]
    assert owner.data(owner.get(f"/tasks/{task['id']}")) == before
    entry = newest_activity(owner, comment)
    assert (entry["action"], entry["title"], entry["changes"]) == (
        *("updated", task["title"]),
        {"content": [None, None]},
    )


def test_what_changes_nothing_is_no_edit(owner, comment):
    for body in ({}, {"content": comment["content"]}):
        assert owner.data(owner.patch(path(comment), body)) == comment
    assert newest_activity(owner, comment)["action"] == "created"


@pytest.mark.parametrize("body", [{"content": " "}, {"content": None}, {"author_id": NOBODY}])
def test_a_wrong_edit_is_refused_and_nothing_written(owner, comment, body):
    fault(owner.patch(path(comment), body), 422, "validation_error", *body)
    assert owner.data(owner.get(f"/tasks/{comment['task_id']}/comments"))["comments"] == [comment]


def test_nobody_else_changes_a_comment(owner, join, task):
    author, admin, member = join("client"), join("admin"), join()
    comment = author.data(author.post(f"/tasks/{task['id']}/comments", {"content": "Mine"}), 201)
    for other in (owner, admin, member):
        answer = other.patch(path(comment), {"content": "Not mine"})
        assert "its author" in fault(answer, 403, "forbidden")["message"]
    assert author.data(author.patch(path(comment), {"content": "Still mine"}))["author"] == comment["author"]


def test_its_author_an_owner_or_an_admin_deletes_a_comment(owner, join, task):
    author, admin, member = join("client"), join("admin"), join()
    for deleter in (author, admin, owner):
        comment = author.data(author.post(f"/tasks/{task['id']}/comments", {"content": "A"}), 201)
        fault(member.delete(path(comment)), 403, "forbidden")
        assert deleter.data(deleter.delete(path(comment))) == {"id": comment["id"], "deleted": True}
        fault(deleter.delete(path(comment)), 404, "not_found")
        assert newest_activity(owner, comment)["action"] == "deleted"
    assert owner.data(owner.get(f"/tasks/{task['id']}/comments"))["comments"] == []
    assert owner.data(owner.get(f"/tasks/{task['id']}"))["comment_count"] == 0


def test_a_comment_is_found_at_its_own_task_only(owner, project, task, comment):
    other = owner.make_task(project)
    for id in (comment["id"], NOBODY, "x"):
        wrong = f"/tasks/{other['id']}/comments/{id}"
        fault(owner.patch(wrong, {"content": "New"}), 404, "not_found")
        fault(owner.delete(wrong), 404, "not_found")
    assert owner.data(owner.get(f"/tasks/{task['id']}/comments"))["comments"] == [comment]


def test_corrections_call_no_webhook(hooked, receiver):
    owner = hooked.client()
    task = owner.make_task(owner.make_project())
    comment = owner.data(owner.post(f"/tasks/{task['id']}/comments", {"content": "A"}), 201)
    added = [call.event for call in receiver.all_here()][-1]
    assert (added["event"], added["data"]["comment"]) == ("comment.added", comment)
    answers = [owner.patch(path(comment), {"content": "B"}), owner.delete(path(comment))]
    assert [answer.headers.get("x-webhook-deliveries") for answer in answers] == [None, None]
    assert receiver.all_here() == []
    assert owner.data(owner.get("/deliveries"))["deliveries"][0]["event"] == "comment.added"
