"""A rescue: a break-glass kubeconfig and the copies in the cluster, no database; and workers lost at every write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.audit.actor import command
from controlplane.fleet.connections import connect_cluster
from controlplane.operations.engine import wake
from controlplane.operations.installation import ensure_lease, take_over_cluster
from controlplane.recovery.models import Restore
from deploy.rig import Rig, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import HOLD, V2, Midway, small_roles
from tests.cluster.restoring import (
    Losses,
    capture,
    edited_policy,
    look_often,
    restore,
    rolled_out,
    turned_with_losses,
)

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
COPIES = "/api/v1/namespaces/lockstep/configmaps"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/lockstep/leases/lockstep-installation"


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="production") as running:
        yield running


def _call(lockstep: Lockstep, *words: str) -> Json:
    """The program as a person starts it: nothing of Lockstep's settings is in its environment."""
    access = ["--kubeconfig", str(lockstep.rig.kubeconfig("break-glass")), "--context", "rig"]
    program = [sys.executable, "-m", "controlplane.recovery.rescue"]
    return {"args": [*program, *access, *words], "cwd": ROOT, "env": {"PATH": "/usr/bin:/bin"}, "text": True}


def rescue(lockstep: Lockstep, *words: str) -> subprocess.CompletedProcess[str]:
    """Called and waited for."""
    return subprocess.run(**_call(lockstep, *words), capture_output=True, timeout=120, check=False)


def begun(lockstep: Lockstep, log: Path, where: str, *words: str) -> subprocess.Popen[str]:
    """A rescue of NAMESPACE/SET that goes on while the test looks."""
    call = _call(lockstep, "restore", where, "--yes", where.partition("/")[2], *words)
    return subprocess.Popen(**call, stdout=log.open("w"), stderr=subprocess.STDOUT)


def by_hand(lockstep: Lockstep, namespace: str, image: str = V2) -> str:
    """Somebody rolls the set out to an image, to the end; the new label."""
    return rolled_out(lockstep.rig, namespace, "model", small_roles(image))


def test_a_rescue_without_the_database(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    client = lockstep.rig.client("break-glass")
    label = make_set(roles=small_roles())
    capture(lockstep, namespace, "model")
    by_hand(lockstep, namespace)
    listed = rescue(lockstep, "list")
    assert listed.returncode == 0 and f"{namespace}/model  combination 1" in listed.stdout, listed
    shown = rescue(lockstep, "show", f"{namespace}/model")
    assert "1. workload" in shown.stdout, shown
    wrong = rescue(lockstep, "restore", f"{namespace}/model", "--yes", "other")
    assert wrong.returncode == 2 and client.get(LEASE)["spec"]["leaseTransitions"] == 1

    done = rescue(lockstep, "restore", f"{namespace}/model", "--yes", "model", "--stable-for", "0.5")
    assert done.returncode == 0 and "Restored: same-bits" in done.stdout, done
    assert workloads.wait_settled(client, namespace, "model") == label
    lease = client.get(LEASE)["spec"]
    assert lease["holderIdentity"].startswith("rescue-") and lease["leaseTransitions"] == 2
    journal = client.get(f"{COPIES}/rescue-{namespace}.model-2")["data"]
    assert (journal["outcome"], journal["bits"]) == ("succeeded", "same-bits")
    assert "recovery.write_roles" in journal["done"]
    assert client.get(f"{COPIES}/hold-{namespace}.model")["metadata"]["labels"][HOLD] == "released"

    # The installation comes back: it may look, and writes nothing until a person takes over.
    with connect_cluster(lockstep.cluster) as kube:
        assert ensure_lease(kube=kube, cluster=lockstep.cluster, actor=command("test")) == "foreign"
        found = lockstep.observe(namespace, "model")
        plan = lockstep.draft(found, {"roles": {"prefill": {"image": V2}}})
        assert plan["state"] == "ready"
        take_over_cluster(kube=kube, cluster=lockstep.cluster, reason="test", actor=command("test"))
    assert client.get(LEASE)["spec"]["leaseTransitions"] == 3
    by_hand(lockstep, namespace)


def test_a_rescue_takes_a_standing_hold_over_and_the_operation_can_write_no_more(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    old = make_set(roles=small_roles())
    capture(lockstep, namespace, "model")
    operation = lockstep.upgrade(namespace, "model", image=V2)
    midway = Midway(lockstep, namespace, operation, old)
    midway.reached("waiting")
    done = rescue(lockstep, "restore", f"{namespace}/model", "--yes", "model", "--stable-for", "0.5")
    assert done.returncode == 0, done
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == old
    assert midway.counts() == midway.before()
    assert lockstep.verb(operation, "abort", {"reason": "it is back"}).status_code == 200
    wake(operation_id=operation.pk)
    lockstep.reached(operation, "held")
    assert lockstep.state(operation).finding["code"] == "foreign-installation"


def test_a_rescue_stops_at_a_guard_that_is_not_as_shipped(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    label = make_set(roles=small_roles())
    capture(lockstep, namespace, "model")
    by_hand(lockstep, namespace)
    words = ("restore", f"{namespace}/model", "--yes", "model", "--stable-for", "0.5")
    with edited_policy(lockstep.rig) as said:
        stopped = rescue(lockstep, *words)
        assert stopped.returncode == 1 and said in stopped.stdout, stopped
    elsewhere = rescue(lockstep, *words, "--guards", "/nowhere")
    assert elsewhere.returncode == 1 and "--guards" in elsewhere.stdout, elsewhere
    done = rescue(lockstep, *words)
    assert done.returncode == 0, done
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == label


def test_copies_are_the_last_two_and_a_broken_one_is_said(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    make_set(roles=small_roles())
    for image in ("", "registry.example/engine:v2", "registry.example/engine:v3"):
        if image:
            by_hand(lockstep, namespace, image)
        capture(lockstep, namespace, "model")
    listed = [line for line in rescue(lockstep, "list").stdout.splitlines() if namespace in line]
    assert [f"combination {number}" in line for number, line in zip((3, 2), listed, strict=True)] == [
        True,
        True,
    ]
    client = lockstep.rig.client("break-glass")
    path = f"{COPIES}/combination-{namespace}.model-1"
    client.patch(path, {"data": {"piece": "{}"}})
    assert "broken" in rescue(lockstep, "list").stdout
    stopped = rescue(lockstep, "restore", f"{namespace}/model", "--combination", "3", "--yes", "model")
    assert stopped.returncode == 1 and "no such combination" in stopped.stdout


@pytest.mark.parametrize("gone", [True, False], ids=["anew", "back"])
def test_a_worker_lost_after_every_single_write(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, gone: bool
) -> None:
    label = make_set(roles=small_roles())
    found = capture(lockstep, namespace, "model")
    if gone:
        by_hand(lockstep, namespace)
    else:
        Midway(lockstep, namespace, lockstep.upgrade(namespace, "model", image=V2), label).reached("waiting")
    losses = Losses()
    turned_with_losses(lockstep, restore(lockstep, found), losses)
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == label
    lost_in = losses.steps
    assert {
        "recovery.open_hold",
        "recovery.write_roles",
        "recovery.reach_alone",
        "recovery.release",
    } <= lost_in
    assert not gone or {"recovery.drain_old", "recovery.settle_pace"} <= lost_in
    assert len(Restore.objects.get().document["parts"]) == 1
