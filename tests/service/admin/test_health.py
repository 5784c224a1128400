"""Liveness, readiness, metrics."""

from tests.service.admin.conftest import TOKEN, Admin


def test_healthz_needs_nothing(admin: Admin) -> None:
    admin.broken.append("first")
    assert admin.stranger.get("/healthz").get_json() == {"status": "ok"}


def test_readyz_returns_the_state_of_each_check(admin: Admin) -> None:
    answer = admin.stranger.get("/readyz")
    assert answer.status_code == 200
    assert answer.get_json() == {
        "status": "ready",
        "checks": {"first": {"state": "ok", "detail": "well"}, "second": {"state": "ok", "detail": "well"}},
    }


def test_readyz_runs_every_check_even_when_one_fails(admin: Admin) -> None:
    admin.broken.append("first")
    answer = admin.stranger.get("/readyz")
    assert answer.status_code == 503
    assert answer.get_json()["checks"]["first"] == {"state": "failed", "detail": "not now"}
    assert answer.get_json()["checks"]["second"]["state"] == "ok"


def test_readyz_keeps_the_cause_of_a_crash_to_the_log(admin: Admin) -> None:
    admin.broken.append("second crashes")
    answer = admin.stranger.get("/readyz")
    assert answer.status_code == 503
    assert "secret" not in answer.get_data(as_text=True)


def test_metrics_require_a_token_if_configured(admin: Admin) -> None:
    assert admin.stranger.get("/metrics").status_code == 401
    answer = admin.stranger.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer.data) == (200, b"up 1\n")
