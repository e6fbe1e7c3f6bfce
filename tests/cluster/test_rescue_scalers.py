"""Scalers in a rescue: paused with the record on the object alone, given back, and found again where it was lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane.audit.actor import command
from controlplane.fleet.connections import connect_cluster
from controlplane.holds.scalers.orphans import GIVE_BACK_ORPHANS, ask_to_give_back, left_paused
from controlplane.operations.clock import database_now
from controlplane.operations.installation import take_over_cluster
from controlplane.operations.models import Run
from controlplane.recovery.models import Combination
from deploy.rig import Api, Rig, until
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import HOLD, V2, Midway, small_roles
from tests.cluster.restoring import capture, look_often, restore, turned
from tests.cluster.scalers import PAUSED, as_before, history, hpa, keda_says, pauses_of, scaled_object
from tests.cluster.test_restore_rescue import COPIES, begun, by_hand, rescue

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
Json = dict[str, Any]


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="production") as running:
        yield running


@pytest.fixture
def busy(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> Json:
    """An HPA that was recorded with the good revision and follows the bad one now, with other bounds."""
    client = lockstep.rig.client("stranger")
    good = make_set(roles=small_roles())
    recorded = client.create(hpa(namespace, child=f"model-{good}-prefill", minReplicas=1))
    capture(lockstep, namespace, "model")
    bad = by_hand(lockstep, namespace)
    spec = {"minReplicas": 2, "maxReplicas": 5, "scaleTargetRef": {"name": f"model-{bad}-prefill"}}
    return {"recorded": recorded, "left": client.patch(client.path(recorded), {"spec": spec})}


def installation_of(body: Json) -> str:
    """For which installation it is paused."""
    text = body["metadata"].get("annotations", {}).get(PAUSED, "{}")
    return str(json.loads(text).get("installation", ""))


def marked(client: Api, scaler: Json) -> str:
    """For which installation it is paused now."""
    return installation_of(client.get(client.path(scaler)))


def stops_midway(lockstep: Lockstep, namespace: str, busy: Json, tmp_path: Path) -> None:
    """A rescue is lost at the hold, with the scaler paused."""
    client, log = lockstep.rig.client("break-glass"), tmp_path / "lost"
    with begun(lockstep, log, f"{namespace}/model", "--stable-for", "300") as lost:
        until("the hold", lambda: "recovery.reach_whole" in log.read_text(), limit_s=60)
        lost.kill()
    assert marked(client, busy["left"]).startswith("rescue-")
    assert client.get(f"{COPIES}/hold-{namespace}.model")["metadata"]["labels"][HOLD] == "true"


def test_a_rescue_pauses_scalers_and_gives_them_back(
    lockstep: Lockstep, namespace: str, busy: Json, tmp_path: Path
) -> None:
    """A ScaledObject beside the HPA: KEDA is waited for, then both are put as they were recorded."""
    client, log = lockstep.rig.client("stranger"), tmp_path / "log"
    target = busy["left"]["spec"]["scaleTargetRef"]["name"].replace("prefill", "decode")
    cron = client.create(scaled_object(namespace, child=target, name="cron"))
    with begun(lockstep, log, f"{namespace}/model", "--stable-for", "0.5") as running:
        until("KEDA to be waited for", lambda: "waits for KEDA" in log.read_text(), limit_s=60)
        assert marked(client, cron) == marked(client, busy["left"]) != ""
        keda_says(client, cron, paused=True)
        assert running.wait(120) == 0, log.read_text()
    stages = history(client, busy["left"])
    assert pauses_of(stages) == pauses_of(history(client, cron)) == [False, True, False]
    assert as_before(stages[-1]) == as_before(busy["recorded"])
    assert as_before(client.get(client.path(cron))) == as_before(cron), "it was not recorded: as it stood"
    done = client.get(f"{COPIES}/rescue-{namespace}.model-2")["data"]["done"]
    assert "holds.pause_scalers" in done and "HorizontalPodAutoscaler busy" in done


def test_a_rescue_goes_on_beside_a_scaler_that_nobody_pauses_when_told_so(
    lockstep: Lockstep, namespace: str, busy: Json
) -> None:
    """KEDA's operator is down with the rest."""
    client = lockstep.rig.client("stranger")
    target = busy["left"]["spec"]["scaleTargetRef"]["name"].replace("prefill", "decode")
    client.create(scaled_object(namespace, child=target, name="cron"))
    words = ("restore", f"{namespace}/model", "--yes", "model", "--stable-for", "0.5")
    stopped = rescue(lockstep, *words)
    assert stopped.returncode == 1 and "KEDA has not taken up the pause" in stopped.stdout, stopped
    assert "--leave-scalers" in stopped.stdout
    done = rescue(lockstep, *words, "--leave-scalers")
    assert done.returncode == 0, done
    assert as_before(client.get(client.path(busy["left"]))) == as_before(busy["recorded"])


def test_a_rescue_that_was_lost_is_run_again(
    lockstep: Lockstep, namespace: str, busy: Json, tmp_path: Path
) -> None:
    client = lockstep.rig.client("stranger")
    stops_midway(lockstep, namespace, busy, tmp_path)
    first = marked(client, busy["left"])
    done = rescue(lockstep, "restore", f"{namespace}/model", "--yes", "model", "--stable-for", "0.5")
    assert done.returncode == 0, done
    stages = history(client, busy["left"])
    assert pauses_of(stages) == [False, True, False]
    names = {installation_of(body) for body in stages} - {""}
    assert first in names and len(names) == 2, "each run under its own name"
    assert as_before(stages[-1]) == as_before(busy["recorded"])


def test_what_a_lost_rescue_leaves_is_seen_and_given_back_when_its_hold_is_released(
    lockstep: Lockstep, namespace: str, busy: Json, tmp_path: Path
) -> None:
    client = lockstep.rig.client("break-glass")
    stops_midway(lockstep, namespace, busy, tmp_path)
    with connect_cluster(lockstep.cluster) as kube:
        take_over_cluster(kube=kube, cluster=lockstep.cluster, reason="it is back", actor=command("test"))
    looks(lockstep)
    (said,) = left_paused(lockstep.cluster.pk)
    assert f"{namespace}/HorizontalPodAutoscaler busy: paused for rescue-" in said and "still held" in said
    assert marked(client, busy["left"])
    client.patch(f"{COPIES}/hold-{namespace}.model", {"metadata": {"labels": {HOLD: "released"}}})
    looks(lockstep)
    assert left_paused(lockstep.cluster.pk) == []
    assert as_before(client.get(client.path(busy["left"]))) == as_before(busy["left"]), "as before the rescue"


def test_a_restore_after_a_lost_rescue_inherits_its_pauses(
    lockstep: Lockstep, namespace: str, busy: Json, tmp_path: Path
) -> None:
    client = lockstep.rig.client("break-glass")
    stops_midway(lockstep, namespace, busy, tmp_path)
    with connect_cluster(lockstep.cluster) as kube:
        take_over_cluster(kube=kube, cluster=lockstep.cluster, reason="it is back", actor=command("test"))
    client.patch(f"{COPIES}/hold-{namespace}.model", {"metadata": {"labels": {HOLD: "released"}}})
    turned(lockstep, restore(lockstep, Combination.objects.get(namespace=namespace)))
    stages = history(client, busy["left"])
    assert pauses_of(stages) == [False, True, False]
    assert as_before(stages[-1]) == as_before(busy["recorded"])


def test_a_rescue_takes_over_what_an_upgrade_has_paused(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    client = lockstep.rig.client("stranger")
    old = make_set(roles=small_roles())
    before = client.create(hpa(namespace, child=f"model-{old}-prefill", minReplicas=2))
    capture(lockstep, namespace, "model")
    midway = Midway(lockstep, namespace, lockstep.upgrade(namespace, "model", image=V2), old)
    midway.reached("waiting")
    assert marked(client, before)
    done = rescue(lockstep, "restore", f"{namespace}/model", "--yes", "model", "--stable-for", "0.5")
    assert done.returncode == 0, done
    stages = history(client, before)
    assert pauses_of(stages) == [False, True, False] and as_before(stages[-1]) == as_before(before)
    with connect_cluster(lockstep.cluster) as kube:
        take_over_cluster(kube=kube, cluster=lockstep.cluster, reason="it is back", actor=command("test"))
    midway.verb("abort", reason="the rescue has done it")
    midway.ends("aborted")
    assert as_before(client.get(client.path(before))) == as_before(before), "and not once more"


def looks(lockstep: Lockstep) -> None:
    """The sweep's look for scalers that nobody gives back."""
    Run.objects.filter(kind=GIVE_BACK_ORPHANS).update(created_at=database_now() - timedelta(hours=1))
    assert ask_to_give_back() == 1
    lockstep.turn()
