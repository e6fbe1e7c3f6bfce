"""Runs are tried again and end; the sweep rings what is due, once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane import queue
from controlplane.errors import Refused
from controlplane.kube.errors import ServerFailed
from controlplane.operations import sweep
from controlplane.operations.clock import Clock
from controlplane.operations.contract import Again, RunDef
from controlplane.operations.installation import ENSURE_LEASE
from controlplane.operations.models import Installation, Operation, Run
from controlplane.operations.runs import carry_out_run, create_run
from tests.controlplane.operations.toy import Toy, make_cluster, make_operation

pytestmark = pytest.mark.django_db


@pytest.fixture
def bells(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Bells that the sweep rings."""
    rung: list[tuple[str, int]] = []
    monkeypatch.setattr(queue, "ring", lambda task, argument: rung.append((task, argument)))
    return rung


class Script:
    """A run that raises or returns what it is told."""

    def __init__(self, *says: Any) -> None:
        self.says = list(says)
        self.failed: list[Any] = []
        self.kubes: list[Any] = []

    def run(self, *, kube: Any, now: Any, **args: Any) -> Any:
        self.kubes.append(kube)
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, Exception):
            raise said
        return {"said": said, **args}

    def mark_failed(self, *, problem: Any, **args: Any) -> None:
        self.failed.append((problem["code"], args))

    def carry_out(self, run: Run) -> str:
        runs = {"toy.check": RunDef(self.run, self.mark_failed)}
        return carry_out_run(run_id=run.pk, runs=runs, connect=Toy().connect, owner="w")


def fresh(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


def make_due(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(not_before=Clock())


def test_a_run_is_done_once() -> None:
    script = Script("fine")
    run = create_run(kind="toy.check", args={"plan": 7}, cluster=make_cluster())
    assert [script.carry_out(run), script.carry_out(run)] == ["done", "not-due"]
    assert (fresh(run).state, fresh(run).result) == ("done", {"said": "fine", "plan": 7})
    assert script.kubes[0] is not None and script.kubes[0].closed


def test_a_run_without_a_cluster_has_no_client() -> None:
    script = Script("fine")
    script.carry_out(create_run(kind="toy.check", args={}))
    assert script.kubes == [None]


def test_a_run_is_tried_again_and_fails_after_five() -> None:
    script = Script(ServerFailed("etcd is away", status=500))
    run = create_run(kind="toy.check", args={"plan": 7}, cluster=make_cluster())
    came = []
    for _ in range(6):
        came.append(script.carry_out(run))
        assert script.carry_out(run) == "not-due", "back-off"
        make_due(run)
    assert came == ["again"] * 4 + ["failed", "not-due"]
    assert (fresh(run).state, fresh(run).problem["code"]) == ("failed", "server-failed")
    assert script.failed == [("server-failed", {"plan": 7})]


def test_a_long_run_goes_on_in_pieces_and_none_of_them_is_a_failed_try() -> None:
    class Long(Script):
        def run(self, *, kube: Any, now: Any, **args: Any) -> Any:
            self.says.append(now)
            return Again() if len(self.says) < 8 else {"pieces": len(self.says)}

    script = Long()
    run = create_run(kind="toy.check", args={}, cluster=make_cluster())
    assert [script.carry_out(run) for _ in range(8)] == ["again"] * 7 + ["done"]
    assert (fresh(run).attempts, fresh(run).result) == (1, {"pieces": 8})


def test_a_refusal_is_not_tried_again() -> None:
    script = Script(Refused("set-gone", "It is gone."))
    run = create_run(kind="toy.check", args={}, cluster=make_cluster())
    assert script.carry_out(run) == "failed"
    assert script.failed == [("set-gone", {})]


def test_a_run_that_kills_its_workers_ends() -> None:
    script = Script("never said")
    run = create_run(kind="toy.check", args={}, cluster=make_cluster())
    lost = timezone.now() - timedelta(seconds=1)
    Run.objects.filter(pk=run.pk).update(attempts=5, lease_until=lost, lease_owner="gone")
    assert script.carry_out(run) == "failed"
    assert script.failed == [("worker-lost", {})]


def test_a_late_run_changes_nothing() -> None:
    class Slow(Script):
        def run(self, *, kube: Any, now: Any, **args: Any) -> Any:
            Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
            assert Script("other").carry_out(run) == "done"
            return {"said": "late"}

    run = create_run(kind="toy.check", args={}, cluster=make_cluster())
    assert Slow("").carry_out(run) == "overtaken"
    assert fresh(run).result == {"said": "other"}


def test_the_sweep_rings_what_is_due_once_a_sweep(bells: list[Any], users: Any) -> None:
    cluster = make_cluster()
    due = make_operation(users.operator, cluster=cluster, targets=["due"])
    later = make_operation(users.operator, cluster=cluster, targets=["later"])
    leased = make_operation(users.operator, cluster=cluster, targets=["leased"])
    held = make_operation(users.operator, cluster=cluster, targets=["held"])
    run = create_run(kind="toy.check", args={}, cluster=cluster)
    Operation.objects.filter(pk=later.pk).update(not_before=timezone.now() + timedelta(hours=1))
    Operation.objects.filter(pk=leased.pk).update(lease_until=timezone.now() + timedelta(hours=1))
    Operation.objects.filter(pk=held.pk).update(state="held")
    assert sweep.ring_due() == 2
    assert bells == [(queue.ADVANCE, due.pk), (queue.CARRY_OUT_RUN, run.pk)]
    assert sweep.ring_due() == 0, "a backlog is not rung over and over"
    Operation.objects.filter(pk=leased.pk).update(lease_until=Clock())
    assert sweep.ring_due() == 1, "a lost lease is rung at once"
    Operation.objects.filter(pk=due.pk).update(rung_at=timezone.now() - timedelta(seconds=6))
    assert sweep.ring_due() == 1, "nobody came: rung again a sweep later"


def test_the_sweep_takes_the_longest_due_first(bells: list[Any], users: Any) -> None:
    cluster = make_cluster()
    rows = [make_operation(users.operator, cluster=cluster, targets=[f"s{n}"]) for n in range(3)]
    Operation.objects.filter(pk=rows[2].pk).update(not_before=timezone.now() - timedelta(hours=1))
    sweep.ring_due(limit=1)
    assert bells == [(queue.ADVANCE, rows[2].pk)]


def test_the_full_sweep_says_that_it_has_been_and_asks_about_new_clusters(
    bells: list[Any], users: Any, django_capture_on_commit_callbacks: Any
) -> None:
    make_cluster(writes="unknown")
    make_cluster("west", writes="ours")
    with django_capture_on_commit_callbacks(execute=True):
        sweep.reconcile()
        sweep.reconcile()
    assert Installation.objects.get().reconciled_at is not None
    [run] = Run.objects.filter(kind=ENSURE_LEASE)
    assert run.cluster is not None and run.cluster.name == "east"
    assert (queue.CARRY_OUT_RUN, run.pk) in bells


@pytest.fixture(autouse=True)
def no_bells(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing here needs a broker."""
    monkeypatch.setattr("controlplane.events._send", lambda body: None)
    yield
