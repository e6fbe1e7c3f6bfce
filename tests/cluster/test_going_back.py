"""Going back to a recorded set of roles: an upgrade like any other, with the fast profile and the recorded pace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane.fleet.models import Revision
from controlplane.upgrades.models import Plan, UpdateRecord
from deploy.rig import Rig, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import HOLD, V1, V2, Midway, look_often, small_roles
from tests.cluster.watcher import observing

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
Json = dict[str, Any]
ROLES = ("prefill", "decode")


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation whose plans need few votes."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="development") as running:
        yield running


@pytest.fixture
def upgraded(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> Midway:
    """2 prefill and 1 decode groups, brought from v1 to v2."""
    old = make_set(roles=small_roles())
    operation = lockstep.upgrade(namespace, "model", image=V2)
    done = Midway(lockstep, namespace, operation, old)
    done.ends("succeeded")
    return done


def recorded(label: str) -> Revision:
    """The recorded revision of a label."""
    return Revision.objects.get(label=label)


def back(midway: Midway, label: str, **options: Any) -> Midway:
    """A started way back to a recorded label; its `old` is what serves now."""
    lockstep = midway.lockstep
    workload = lockstep.observe(midway.namespace, "model")
    plan = lockstep.draft(workload, {"back_to": recorded(label).pk}, **options)
    assert plan["state"] == "ready", plan
    serving = workloads.wait_settled(midway.client("admin"), midway.namespace, "model")
    return Midway(lockstep, midway.namespace, lockstep.start(plan), serving)


def pace(midway: Midway) -> list[Json]:
    """Surge and unavailable of each role as they stand."""
    return [role["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"] for role in midway.live_roles()]


def images(midway: Midway) -> list[str]:
    """The image of each role as it stands."""
    return [
        role["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"]
        for role in midway.live_roles()
    ]


def test_the_recorded_label_comes_back_fast_and_the_recorded_pace_with_it(upgraded: Midway) -> None:
    usual = pace(upgraded)
    with observing(upgraded.lockstep.rig.kubeconfig("admin"), upgraded.namespace, "model") as seen:
        again = back(upgraded, upgraded.old, profile="fast")
        fast: list[list[Json]] = []
        rows = Plan.objects.get(pk=again.operation.subject_id).rows
        assert rows is not None
        assert [(row["old"], row["new"]) for row in rows["rows"]] == [
            ([2, 1], [0, 0]),
            ([2, 1], [2, 1]),
            ([0, 0], [2, 1]),
        ], "the whole new side beside the old one, then one switch"

        def first_row_stands() -> bool:
            again.look()
            return again.operation.steps.filter(name="upgrades.reach_row", state="done").exists()

        again.lockstep.until("the first row", first_row_stands)
        fast.append(pace(again))
        again.ends("succeeded")

    client = again.client("admin")
    assert workloads.wait_settled(client, again.namespace, "model") == upgraded.old == again.new
    assert images(again) == [V1, V1]
    assert {role["maxSurge"] for role in fast[0]} == {"100%"}
    assert pace(again) == usual, "the pace is as recorded"
    assert client.get(again.parameter_path)["metadata"]["labels"][HOLD] == "released"
    assert seen.total_peak("prefill") == 4 and seen.total_peak("decode") == 2
    assert seen.least_ready("prefill", start=2) == 2 and seen.least_ready("decode", start=1) == 1

    document = UpdateRecord.objects.get(operation=again.operation).document
    assert (document["profile"], document["goes_back_to"]) == ("fast", upgraded.old)
    assert {entry["after"] for entry in document["revisions"].values()} == {upgraded.old}
    names = [step["name"] for step in document["confirmation"]["steps"]]
    assert names.index("upgrades.verify") < names.index("upgrades.settle_roles")
    former = UpdateRecord.objects.get(operation=upgraded.operation).document
    assert (former["profile"], former["goes_back_to"]) == ("normal", None)
    assert document["confirmation"]["images"]["decode"]["engine"]["image"] == V1


def test_what_is_recorded_is_the_usual_pace_not_the_fast_one(upgraded: Midway) -> None:
    """Back, and forward again to what a fast way back has left."""
    usual = pace(upgraded)
    first = back(upgraded, upgraded.old, profile="fast")
    first.ends("succeeded")
    for label in (upgraded.old, upgraded.new):
        strategies = [role["spec"]["rolloutStrategy"] for role in recorded(label).roles or []]
        assert [each["rollingUpdateConfiguration"] for each in strategies] == usual, label
    second = back(first, upgraded.new, profile="normal")
    second.ends("succeeded")
    assert workloads.wait_settled(second.client("admin"), second.namespace, "model") == upgraded.new
    assert images(second) == [V2, V2] and pace(second) == usual
    names = second.operation.steps.values_list("name", flat=True)
    assert "upgrades.settle_roles" not in names, "there is nothing to settle"


def test_a_way_back_that_is_aborted_gives_the_pace_back_too(upgraded: Midway) -> None:
    usual = pace(upgraded)
    again = back(upgraded, upgraded.old, profile="fast")

    def first_row_stands() -> bool:
        again.look()
        return again.operation.steps.filter(name="upgrades.reach_row", state="done").exists()

    again.lockstep.until("the first row", first_row_stands)
    again.goes_back()
    assert again.old == upgraded.new
    assert images(again) == [V2, V2] and pace(again) == usual
    assert UpdateRecord.objects.get(operation=again.operation).outcome == "aborted"


def test_an_abort_after_the_pace_was_settled(upgraded: Midway) -> None:
    usual = pace(upgraded)
    again = back(upgraded, upgraded.old, profile="fast")

    def settled() -> bool:
        now = again.lockstep.state(again.operation)
        if now.state == "waiting":
            again.lockstep.let_go(now)
        again.look()
        return again.operation.steps.filter(name="upgrades.settle_roles", state="done").exists()

    again.lockstep.until("the pace is settled", settled)
    again.goes_back()
    assert images(again) == [V2, V2] and pace(again) == usual


def test_only_recorded_revisions_of_this_set(upgraded: Midway, make_set: MakeSet) -> None:
    lockstep = upgraded.lockstep
    make_set("other", roles=small_roles())
    other = lockstep.observe(upgraded.namespace, "other")
    for workload, revision in ((other, recorded(upgraded.old).pk), (upgraded_workload(upgraded), 10**9)):
        plan = lockstep.draft(workload, {"back_to": revision})
        assert (plan["state"], plan["problem"]["code"]) == ("blocked", "revision-not-recorded")


def upgraded_workload(upgraded: Midway) -> Any:
    """The row of the upgraded set."""
    return upgraded.lockstep.observe(upgraded.namespace, "model")


def test_going_back_to_what_serves_rolls_nothing(upgraded: Midway) -> None:
    plan = upgraded.lockstep.draft(
        upgraded_workload(upgraded), {"back_to": recorded(upgraded.new).pk}, profile="fast"
    )
    assert plan["state"] == "blocked"
    assert "no-template-changes" in plan["blocking"]
