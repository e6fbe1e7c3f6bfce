"""Alive, whole, and measured."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import OperationalError
from django.test import Client

from controlplane import health
from controlplane.audit.clock import database_now
from controlplane.fleet.models import Cluster
from controlplane.operations.installation import record_sweep
from tests.conftest import Cast
from tests.controlplane.approvals.requests import ask
from tests.controlplane.audit.events import write

pytestmark = pytest.mark.django_db


def ready(client: Client) -> tuple[int, dict[str, Any]]:
    answer = client.get("/readyz")
    return answer.status_code, answer.json()


def watched(name: str, ago: float | None) -> Cluster:
    now = database_now()
    seen = None if ago is None else now - timedelta(seconds=ago)
    return Cluster.objects.create(
        name=name, context=name, environment="staging", observed_at=seen, created_at=now, updated_at=now
    )


def test_alive_without_asking_anything(client: Client, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert client.get("/healthz").json() == {"status": "ok"}


def test_whole(client: Client) -> None:
    record_sweep(now=database_now())
    watched("lab", 3)
    status, seen = ready(client)
    assert (status, seen["ready"], seen["degraded"]) == (200, True, [])
    assert set(seen["parts"]) == {"database", "broker", "migrations", "clock", "sweep", "audit", "watch"}
    assert 3 <= seen["parts"]["watch"]["age_seconds"]["lab"] < 10


def _no_broker(settings: LazySettings, patch: pytest.MonkeyPatch) -> None:
    settings.LOCKSTEP_BROKER_URL = "redis://127.0.0.1:1/0"


def _drift(settings: LazySettings, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(health, "database_now", lambda: database_now() + timedelta(seconds=6))


def _late_sweep(settings: LazySettings, patch: pytest.MonkeyPatch) -> None:
    record_sweep(now=database_now() - timedelta(seconds=60))


def _stale_watch(settings: LazySettings, patch: pytest.MonkeyPatch) -> None:
    watched("old", 31)


def _no_watch(settings: LazySettings, patch: pytest.MonkeyPatch) -> None:
    watched("never", None)


def _unsealed(settings: LazySettings, patch: pytest.MonkeyPatch) -> None:
    write(1)
    patch.setattr(health, "unsealed_age", lambda: 61.0)


@pytest.mark.parametrize(
    ("harm", "part"),
    [
        (_no_broker, "broker"),
        (_drift, "clock"),
        (_late_sweep, "sweep"),
        (_stale_watch, "watch"),
        (_no_watch, "watch"),
        (_unsealed, "audit"),
    ],
)
def test_degraded_serves_on_and_says_so(
    client: Client,
    settings: LazySettings,
    monkeypatch: pytest.MonkeyPatch,
    harm: Callable[[LazySettings, pytest.MonkeyPatch], None],
    part: str,
) -> None:
    record_sweep(now=database_now())
    harm(settings, monkeypatch)
    status, seen = ready(client)
    assert (status, seen["ready"], seen["degraded"]) == (200, True, [part])


def test_a_sweep_that_never_was_is_late(client: Client) -> None:
    assert ready(client)[1]["parts"]["sweep"] == {"ok": False, "age_seconds": None}


def test_without_a_database_it_is_not_ready(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> health.Part:
        raise OperationalError("connection to 10.0.0.5 refused")

    monkeypatch.setattr(health, "_database", away)
    status, seen = ready(client)
    assert (status, seen["ready"]) == (503, False)
    assert seen["parts"]["database"] == {"ok": False, "problem": "OperationalError"}


def test_with_migrations_missing_it_is_not_ready(client: Client) -> None:
    from django.db.migrations.recorder import MigrationRecorder

    MigrationRecorder.Migration.objects.filter(app="approvals", name="0002_votes_stay").delete()
    status, seen = ready(client)
    assert (status, seen["ready"]) == (503, False)
    assert seen["parts"]["migrations"]["missing"] == ["approvals.0002_votes_stay"]


def test_metrics(client: Client, users: Cast) -> None:
    ask(users.operator)
    ask(users.operator, subject_id=8, risk="low")
    watched("lab", 3)
    record_sweep(now=database_now())
    lines = client.get("/metrics").content.decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values["lockstep_database_up"] == "1.0"
    assert values['lockstep_change_requests{state="open"}'] == "1.0"
    assert values['lockstep_change_requests{state="approved"}'] == "1.0"
    assert 3 <= float(values['lockstep_watch_age_seconds{cluster="lab"}']) < 10
    assert abs(float(values["lockstep_clock_drift_seconds"])) < 5
    assert "lockstep_sweep_age_seconds" in values and "lockstep_audit_unsealed_age_seconds" in values
