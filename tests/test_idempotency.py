"""`Idempotency-Key`: however often a POST is repeated, it is done once."""

from functools import partial

import pytest
from harness import at_once, fault
from test_attachments import attach


def headers(key):
    return {"Idempotency-Key": key}


def body_of(answer):
    """What a repetition must repeat."""
    return (
        answer.status_code,
        answer.json()["data"],
        answer.headers.get("Location"),
        answer.headers.get("ETag"),
    )


def posts(project, task):
    """Every POST that creates, and a second one that differs."""
    meeting = {"title": "M", "starts_at": "2099-01-01"}
    return {
        "/tasks": ({"project_id": project["id"], "title": "x"}, {"project_id": project["id"], "title": "y"}),
        f"/tasks/{task['id']}/comments": ({"content": "x"}, {"content": "y"}),
        "/projects": ({"name": "x"}, {"name": "y"}),
        f"/projects/{project['id']}/milestones": ({"title": "x"}, {"title": "y"}),
        "/meetings": (meeting, meeting | {"title": "N"}),
        "/whiteboards": ({"title": "x"}, {"title": "x", "content": {"a": 1}}),
    }


@pytest.mark.parametrize("number", range(6))
def test_a_repetition_is_answered_as_the_first_call_and_does_nothing(server, owner, project, task, number):
    path, (body, other) = list(posts(project, task).items())[number]
    key = f"key-{number}"
    first = owner.post(path, body, headers=headers(key))
    assert first.status_code == 201
    assert "Idempotent-Replayed" not in first.headers
    activities = server.rows("SELECT count(*) AS n FROM activity")
    for _ in range(3):
        again = owner.post(path, body, headers=headers(key))
        assert body_of(again) == body_of(first)
        assert again.headers["Idempotent-Replayed"] == "true"
        assert again.json()["meta"]["request_id"] != first.json()["meta"]["request_id"]
    fault(owner.post(path, other, headers=headers(key)), 422, "idempotency_key_reused")
    assert server.rows("SELECT count(*) AS n FROM activity") == activities
    assert owner.post(path, other, headers=headers(key + "b")).status_code == 201


def test_an_attachment_is_made_once(owner, project, task):
    first = attach(owner, task, headers=headers("file"))
    again = attach(owner, task, headers=headers("file"))  # with another boundary
    assert body_of(again) == body_of(first)
    assert len(owner.data(owner.get(f"/tasks/{task['id']}"))["attachments"]) == 1
    fault(attach(owner, task, content=b"Other", headers=headers("file")), 422, "idempotency_key_reused")


def test_a_key_is_for_one_path(owner, project, task):
    other = owner.make_task(project)
    assert (
        owner.post(f"/tasks/{task['id']}/comments", {"content": "x"}, headers=headers("path")).status_code
        == 201
    )
    answer = owner.post(f"/tasks/{other['id']}/comments", {"content": "x"}, headers=headers("path"))
    fault(answer, 422, "idempotency_key_reused")


def test_a_key_is_one_api_keys_own(owner, join, project):
    body = {"project_id": project["id"], "title": "x"}
    first = owner.post("/tasks", body, headers=headers("own"))
    other = join().post("/tasks", body, headers=headers("own"))
    assert other.status_code == 201
    assert other.json()["data"]["id"] != first.json()["data"]["id"]


def test_twenty_at_once_make_one_task_and_twenty_equal_answers(server, owner, project):
    body = {"project_id": project["id"], "title": "once"}
    answers = at_once(*[partial(server.client().post, "/tasks", body, headers=headers("storm"))] * 20)
    assert {str(body_of(answer)) for answer in answers} == {str(body_of(answers[0]))}
    assert answers[0].status_code == 201
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers) == 1
    assert owner.data(owner.get("/tasks", project_id=project["id"]))["pagination"]["total"] == 1


def test_a_refusal_is_not_kept(owner, project):
    body = {"project_id": project["id"], "title": ""}
    fault(owner.post("/tasks", body, headers=headers("refused")), 422, "validation_error", "title")
    assert owner.post("/tasks", body | {"title": "x"}, headers=headers("refused")).status_code == 201


def test_after_a_kill_a_repetition_replays_or_is_the_first(launch):
    server = launch()
    owner = server.client()
    project = owner.make_project()
    body = {"project_id": project["id"], "title": "x"}
    made = [owner.post("/tasks", body, headers=headers(f"k{n}")) for n in range(20)]
    server.kill()
    server.start()
    owner = server.client()
    for number, first in enumerate(made):
        again = owner.post("/tasks", body, headers=headers(f"k{number}"))
        assert body_of(again) == body_of(first)
    assert owner.post("/tasks", body, headers=headers("k20")).status_code == 201
    assert owner.data(owner.get("/tasks", project_id=project["id"]))["pagination"]["total"] == 21


def test_a_day_later_the_key_is_free(server, owner, project):
    body = {"project_id": project["id"], "title": "x"}
    first = owner.post("/tasks", body, headers=headers("old"))
    server.rows(
        "UPDATE stored_answer SET created_at = '2026-01-01T00:00:00.000Z' WHERE idempotency_key = 'old'"
    )
    again = owner.post("/tasks", body | {"title": "another"}, headers=headers("old"))
    assert again.status_code == 201
    assert again.json()["data"]["id"] != first.json()["data"]["id"]
    assert "Idempotent-Replayed" not in again.headers


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "é", "a\tb"])
def test_a_key_that_is_none_is_refused(owner, project, key):
    body = {"project_id": project["id"], "title": "x"}
    answer = owner.post("/tasks", body, headers={"Idempotency-Key": key.encode("latin-1")})
    fault(answer, 422, "validation_error", "Idempotency-Key")


def test_a_key_may_be_255_characters_long(owner, project):
    body = {"project_id": project["id"], "title": "x"}
    assert owner.post("/tasks", body, headers=headers("!~" * 127 + "x")).status_code == 201


def test_where_the_answer_holds_a_secret_it_is_refused(server, owner, join):
    body = {"email": "idempotent@example.com", "full_name": "I", "role": "member"}
    fault(
        owner.post("/members/invite", body, headers=headers("k")), 422, "validation_error", "Idempotency-Key"
    )
    fault(
        owner.post("/keys", {"name": "k"}, headers=headers("k")), 422, "validation_error", "Idempotency-Key"
    )
    link = owner.data(owner.post("/members/invite", body), 201)["enrollment_link"]
    path = f"/enroll/{link.rpartition('/')[2]}"
    answer = server.client(None).post(path, headers=headers("k"))
    fault(answer, 422, "validation_error", "Idempotency-Key")
    assert server.client(None).post(path).status_code == 201


def test_no_secret_is_stored_for_replays(server, owner):
    secret = owner.data(owner.post("/keys", {"name": "k"}), 201)["api_key"]
    assert secret not in str(server.rows("SELECT * FROM stored_answer"))
