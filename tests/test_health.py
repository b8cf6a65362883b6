"""GET /health: what monitoring asks, with and without a key."""

import requests
from harness import PATIENCE

import schemas


def test_answers_without_a_key_and_says_more_to_whoever_has_one(server, owner):
    nobody = server.client(None)
    assert owner.data(nobody.get("/health", uptime_kuma_cachebuster="abc")) == {"status": "ok"}
    for path in ("/docs", "/openapi.json"):
        assert requests.get(f"{server.base}/api/v1{path}?v=2", timeout=PATIENCE).status_code == 200
    data = owner.data(owner.get("/health"))
    assert data.pop("uptime_seconds") >= 0
    assert data == {
        "status": "ok",
        "version": schemas.VERSION,
        "checks": {
            "database": "ok",
            "writes_refused_since": None,
            "webhooks": {"pending": 0, "failing_endpoints": 0},
            "mail": {"is_sent": False, "unreached": 0},
        },
    }


def test_answers_head(owner):
    answer = owner.request("HEAD", "/health")
    assert (answer.status_code, answer.content) == (200, b"")
