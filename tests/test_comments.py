"""Comments of a task."""

from conftest import INSTANT, UUID, fault


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
    }


def test_all_comments_are_listed_oldest_first(owner, task):
    assert owner.data(owner.get(f"/tasks/{task['id']}/comments")) == {"comments": []}
    made = [
        owner.data(owner.post(f"/tasks/{task['id']}/comments", {"content": str(n)}), 201) for n in range(120)
    ]
    assert owner.data(owner.get(f"/tasks/{task['id']}/comments")) == {"comments": made}


def test_a_blank_comment_is_refused(owner, task):
    for content in ("", " \n\t", None, 5):
        answer = owner.post(f"/tasks/{task['id']}/comments", {"content": content})
        fault(answer, 422, "validation_error", "content")
    fault(owner.post(f"/tasks/{task['id']}/comments", {}), 422, "validation_error", "content")
    assert owner.data(owner.get(f"/tasks/{task['id']}/comments"))["comments"] == []


def test_a_deleted_task_takes_no_comment(owner, task):
    owner.delete(f"/tasks/{task['id']}")
    fault(owner.post(f"/tasks/{task['id']}/comments", {"content": "x"}), 404, "not_found")
