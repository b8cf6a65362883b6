"""`Idempotency-Key`: however often a POST is repeated, it is done once."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from harness import at_once, fault
from test_attachments import attach

NEEDS_SOCKET = False


def post(client, path, body, key):
    return client.post(path, body, headers={"Idempotency-Key": key})


def repeated(answer):
    """Return the parts of an answer that a repetition must repeat."""
    headers = [answer.headers.get(name) for name in ("Location", "ETag")]
    return answer.status_code, answer.json()["data"], headers


@pytest.fixture
def body(project):
    """A task to create."""
    return {"project_id": project["id"], "title": "x"}


# Every POST that creates, its body, and what differs in another one.
POSTS = {
    "/tasks": ({"title": "x"}, {"title": "y"}),
    "/tasks/{task}/comments": ({"content": "x"}, {"content": "y"}),
    "/tasks/{number}/comments": ({"content": "x"}, {"content": "y"}),
    "/tasks/{number}/copy": ({"title": "x"}, {"title": "y"}),
    "/projects": ({"name": "x"}, {"name": "y"}),
    "/projects/{project}/milestones": ({"title": "x"}, {"title": "y"}),
    "/meetings": ({"title": "M", "starts_at": "2099-01-01"}, {"title": "N"}),
    "/whiteboards": ({"title": "x"}, {"content": {"a": 1}}),
}


@pytest.mark.parametrize("path", POSTS)
def test_a_repetition_is_answered_as_the_first_call_and_does_nothing(server, owner, project, task, path):
    key, (body, difference) = path, POSTS[path]
    body = body | ({"project_id": project["id"]} if path == "/tasks" else {})
    path = path.format(project=project["id"], task=task["id"], number=task["number"])
    first = post(owner, path, body, key)
    assert first.status_code == 201
    assert "Idempotent-Replayed" not in first.headers
    activities = server.rows("SELECT count(*) AS n FROM activity")
    for _ in range(2):
        again = post(owner, path, body, key)
        assert repeated(again) == repeated(first)
        assert again.headers["Idempotent-Replayed"] == "true"
        assert again.json()["meta"]["request_id"] != first.json()["meta"]["request_id"]
    fault(post(owner, path, body | difference, key), 422, "idempotency_key_reused")
    assert server.rows("SELECT count(*) AS n FROM activity") == activities
    assert post(owner, path, body | difference, key + "b").status_code == 201


def test_an_attachment_is_made_once(owner, task):
    headers = {"Idempotency-Key": "file"}
    first = attach(owner, task, headers=headers)
    again = attach(owner, task, headers=headers)  # with another boundary
    assert repeated(again) == repeated(first)
    assert len(owner.read(f"/tasks/{task['id']}")["attachments"]) == 1
    fault(attach(owner, task, content=b"Other", headers=headers), 422, "idempotency_key_reused")


def test_a_repetition_is_answered_although_its_task_was_deleted(owner, project):
    posts = {"comments": {"json": {"content": "x"}}, "copy": {"json": {}}}
    posts["attachments"] = {"files": {"file": ("x.txt", b"x")}}
    for name, (kind, sent) in product(("id", "number"), posts.items()):
        task = owner.make_task(project)
        path, key = f"/tasks/{task[name]}", f"{name}-{kind}"

        def send(key, address=f"{path}/{kind}", sent=sent):
            return owner.request("POST", address, headers={"Idempotency-Key": key}, **sent)

        first = send(key)
        assert first.status_code == 201
        assert owner.data(owner.delete(path)) == {"id": task["id"], "deleted": True}
        assert repeated(send(key)) == repeated(first)
        fault(send("new"), 404, "not_found")


def test_a_key_is_for_one_path_and_one_api_keys_own(owner, join, project, task, body):
    path, elsewhere = (f"/tasks/{id}/comments" for id in (task["id"], owner.make_task(project)["id"]))
    first, other = [post(client, path, {"content": "x"}, "own") for client in (owner, join())]
    assert owner.data(other, 201)["id"] != owner.data(first, 201)["id"]
    fault(post(owner, elsewhere, {"content": "x"}, "own"), 422, "idempotency_key_reused")
    owner.data(post(owner, "/tasks", body, "paths"), 201)
    fault(post(owner, "/whiteboards", body, "paths"), 422, "idempotency_key_reused")


def test_twenty_at_once_make_one_task_and_twenty_equal_answers(server, owner, body):
    answers = at_once(*[lambda: post(server.client(), "/tasks", body, "storm")] * 20)
    assert {str(repeated(answer)) for answer in answers} == {str(repeated(answers[0]))}
    assert answers[0].status_code == 201
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
    assert owner.read("/tasks", project_id=body["project_id"])["pagination"]["total"] == 1


def test_a_key_is_free_again_after_a_day(server, owner, body):
    first = owner.data(post(owner, "/tasks", body, "old"), 201)
    for hours in (23, 25):
        at = (datetime.now(UTC) - timedelta(hours=hours)).isoformat(timespec="milliseconds")
        set_back = "UPDATE stored_answer SET created_at = ? WHERE idempotency_key = 'old'"
        server.rows(set_back, at.replace("+00:00", "Z"))
        again = post(owner, "/tasks", body, "old")
        assert ("Idempotent-Replayed" in again.headers) == (hours == 23)
        assert (owner.data(again, 201)["id"] == first["id"]) == (hours == 23)


def test_a_key_is_1_to_255_visible_characters_and_of_a_refused_call_free_again(owner, body):
    fault(post(owner, "/tasks", body | {"title": ""}, "refused"), 422, "validation_error", "title")
    assert post(owner, "/tasks", body, "refused").status_code == 201
    for key in ("", "a b", "x" * 256, "é", "a\tb"):
        fault(post(owner, "/tasks", body, key.encode("latin-1")), 422, "validation_error", "Idempotency-Key")
    assert post(owner, "/tasks", body, "!~" * 127 + "x").status_code == 201


def test_an_idempotency_key_is_refused_where_the_answer_is_secret(server, owner):
    body = {"email": "idempotent@example.com", "full_name": "I", "role": "member"}
    link = owner.make("/members/invite", body)["enrollment_link"]
    path, stranger = f"/enroll/{link.rpartition('/')[2]}", server.client(None)
    calls = [(owner, "/members/invite", body), (owner, "/keys", {"name": "k"}), (stranger, path, None)]
    for client, place, sent in calls:
        fault(post(client, place, sent, "k"), 422, "validation_error", "Idempotency-Key")
    assert stranger.post(path).status_code == 201
