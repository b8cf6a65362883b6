"""GET /health: what monitoring asks, with and without a key."""

import settings

NEEDS_SOCKET = False


def test_answers_without_a_key_and_says_more_to_whoever_has_one(server, owner, capfd):
    assert owner.data(server.client(None).get("/health", uptime_kuma_cachebuster="abc")) == {"status": "ok"}
    for path in ("/docs", "/openapi.json"):
        assert server.call("GET", f"/api/v1{path}?v=2").status_code == 200
    data = owner.read("/health")
    assert data.pop("uptime_seconds") >= 0
    checks = {"database": "ok", "writes_refused_since": None, "mail": {"is_sent": False, "unreached": 0}}
    checks["webhooks"] = {"pending": 0, "failing_endpoints": 0}
    assert data == {"status": "ok", "version": settings.VERSION, "checks": checks}
    log = capfd.readouterr().out
    assert "GET /api/v1/openapi.json 200" in log
    assert "GET /api/v1/health 200" not in log  # a monitor would fill the log
    answer = owner.request("HEAD", "/health")
    assert (answer.status_code, answer.content) == (200, b"")
