"""One slice after the other on a LeaderWorkerSet manager that has slices (LOCKSTEP_LWS_BIN); on no registry.

Without it the engine, the planner and the parameter keys are proved on recorded objects:
tests/controlplane/upgrades/test_slices.py and test_sliced_run.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from controlplane.fleet.models import Cluster
from controlplane.operations.models import Operation
from deploy.rig import Rig, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.four import seen_now
from tests.cluster.midway import HOLD, V2, Midway, look_often, small_roles
from tests.cluster.watcher import Key, Seen, observing

pytestmark = [pytest.mark.rig, pytest.mark.lws_main, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
SIZES = {"prefill": 2, "decode": 1}


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation beside a manager that has slices; holds wait for a person."""
    assert rig.lws_has_slices, "LOCKSTEP_LWS_BIN names a manager without slices"
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="development") as running:
        Cluster.objects.update(
            lws_version=""
        )  # its version is on no list: rows are an estimate, gone through singly
        yield running


def counts(midway: Midway) -> dict[Key, int]:
    """(slice, revision, role) → groups wanted, empty sides left out."""
    found = {}
    for child in workloads.lws_of(midway.client("admin"), midway.namespace, "model"):
        labels = child["metadata"]["labels"]
        key = (
            labels.get(workloads.SLICE_LABEL, "0"),
            labels[workloads.REVISION_LABEL],
            labels[workloads.ROLE_LABEL],
        )
        if child["spec"]["replicas"]:
            found[key] = int(child["spec"]["replicas"])
    return found


def side(slice_key: str, revision: str) -> dict[Key, int]:
    """A whole slice at one revision."""
    return {(slice_key, revision, role): count for role, count in SIZES.items()}


def begun(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> Midway:
    """A started upgrade of two slices, one by one."""
    old = make_set(roles=small_roles(), slices=2)
    operation = lockstep.upgrade(namespace, "model", image=V2, slice_order="one-by-one", promote="manual")
    return Midway(lockstep, namespace, operation, old)


def to_slice_1(midway: Midway) -> None:
    """Turn, promoting at every hold, until slice 0 has finished and slice 1 has not been allowed anything."""

    def next_is(now: Operation) -> bool:
        current = now.steps.filter(state="pending").order_by("index").first()
        assert current is not None and now.state != "held", midway.lockstep.story()
        if now.state == "waiting":
            seen_now(midway.lockstep)
            midway.lockstep.let_go(now)
        return bool(current.args.get("slices") == ["1"])

    midway._turn_until("the turn of slice 1", next_is, 120)


@pytest.fixture
def seen(rig: Rig, namespace: str) -> Iterator[Seen]:
    """An observer of its own."""
    with observing(rig.kubeconfig("admin"), namespace, "model") as watched:
        yield watched


def test_the_canary_slice_finishes_before_the_other_begins(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, seen: Seen
) -> None:
    midway = begun(lockstep, namespace, make_set)
    to_slice_1(midway)
    assert counts(midway) == {**side("0", midway.new), **side("1", midway.old)}
    data = midway.client("admin").get(midway.parameter_path)["data"]
    assert {data[f"ceil.1.{midway.new}.{role}"] for role in SIZES} == {"0"}
    assert all(seen.most(midway.new, role, slice_key="1") == 0 for role in SIZES)

    def over() -> bool:
        now = lockstep.state(midway.operation)
        if now.state == "waiting":
            seen_now(lockstep)
            lockstep.let_go(now)
        midway.look()
        return now.state == "succeeded"

    lockstep.until("the end", over, limit_s=120)
    assert counts(midway) == {**side("0", midway.new), **side("1", midway.new)}
    assert midway.client("admin").get(midway.parameter_path)["metadata"]["labels"][HOLD] == "released"
    for role, count in SIZES.items():
        assert seen.total_peak(role) <= 2 * count + 1, "one slice at a time takes its surge"


def test_both_slices_go_back_from_between(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, seen: Seen
) -> None:
    midway = begun(lockstep, namespace, make_set)
    to_slice_1(midway)
    midway.verb("abort", reason="test")
    midway.ends("aborted", limit_s=120)
    assert counts(midway) == {**side("0", midway.old), **side("1", midway.old)}
    assert all(seen.most(midway.new, role, slice_key="1") == 0 for role in SIZES)
    assert workloads.wait_settled(midway.client("admin"), namespace, "model") == midway.old
