"""Row by row: engines that do not get ready, stop, adopt, private Services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controlplane.upgrades.models import Plan, UpdateRecord
from deploy.rig import ApiError, until, workloads
from deploy.rig.api import MERGE
from tests.cluster.driving import Lockstep
from tests.cluster.four import Four, asked, done, four, remembered, seen_now
from tests.cluster.midway import Midway, at_first_hold, small_roles
from tests.cluster.watcher import observing

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
Json = dict[str, Any]
ROLES = ("prefill", "decode")


without_votes = pytest.mark.parametrize("lockstep", ["development"], indirect=True)


def begun(lockstep: Lockstep, namespace: str, make_set: MakeSet, changes: Json, **options: Any) -> Midway:
    """A started upgrade of 2 prefill and 1 decode groups; `changes` go to both roles."""
    old = make_set(roles=small_roles())
    plan = lockstep.draft(
        lockstep.observe(namespace, "model"), {"roles": dict.fromkeys(ROLES, changes)}, **options
    )
    assert plan["state"] == "ready", plan
    return Midway(lockstep, namespace, lockstep.start(plan), old)


# --- engines that do not get ready


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [("never-ready", "not ready for"), ("flicker", "flicker|not ready"), ("crash", "restart|not ready")],
)
@without_votes
def test_an_engine_that_never_serves_stops_at_the_first_row_and_goes_back(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, behaviour: str, says: str
) -> None:
    changes = {"image": f"registry.example/engine:v2-{behaviour}", "env": {"RIG_PERIOD": "800ms"}}
    upgrade = begun(lockstep, namespace, make_set, changes, stable_for=2)
    remembered(upgrade, stuck_after=2)
    with observing(lockstep.rig.kubeconfig("admin"), namespace, "model") as seen:
        finding = upgrade.found("row-not-ready")
        assert any(word in finding["sentence"] for word in says.split("|")), finding
        assert all(upgrade.new in name for name in finding["facts"]["unready"]), finding
        assert finding["facts"]["unready"]
        assert done(upgrade, "reach_row") == [], "it does not count as reached"
        upgrade.verb("retry", reason="perhaps now")
        upgrade.found("row-not-ready")
        upgrade.goes_back()
    assert seen.total_peak("prefill") <= 3 and seen.total_peak("decode") <= 2
    assert seen.least_ready("prefill", start=2) == 2 and seen.least_ready("decode", start=1) == 1
    images = UpdateRecord.objects.get(operation=upgrade.operation).document["confirmation"]["images"]
    plan = Plan.objects.get(pk=upgrade.operation.subject_id)
    assert plan.base is not None and images == plan.base["images"], "the same image IDs"


@without_votes
def test_engines_that_take_their_time_are_waited_for(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = begun(lockstep, namespace, make_set, {"image": "registry.example/engine:v2-late-3s"})
    waits: set[str] = set()

    def at_row_2() -> bool:
        now = lockstep.state(upgrade.operation)
        assert now.state in {"working", "waiting"}, now.finding
        waits.add(now.waits_for.get("what", ""))
        upgrade.look()
        return len(done(upgrade, "reach_row")) == 2

    lockstep.until("two rows", at_row_2)
    assert any(what.startswith("row 1: ready: ") for what in waits), waits
    upgrade.ends("succeeded")


# --- stop and adopt


def moves(upgrade: Midway, revision: str, role: str, replicas: int) -> bool:
    """Whether the hold would let somebody change this set, by a dry run."""
    path = f"/apis/{workloads.LWS_GROUP}/namespaces/{upgrade.namespace}/leaderworkersets"
    try:
        upgrade.client().request(
            "PATCH",
            f"{path}/model-{revision}-{role}",
            {"spec": {"replicas": replicas}},
            query={"dryRun": "All"},
            content_type=MERGE,
        )
    except ApiError as error:
        assert f"lockstep hold U-{upgrade.operation.pk}" in str(error), error
        return False
    return True


def test_stop_freezes_what_stands_and_resume_goes_on(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set)
    upgrade.verb("stop", reason="an incident elsewhere")
    finding = upgrade.found("stopped")
    assert "Resume" in finding["next_action"]
    frozen = [(label, role, count) for (label, role), count in upgrade.first_row().items()]
    assert not any(moves(upgrade, *each[:2], each[2] + step) for each in frozen for step in (1, -1))
    lockstep.approve(asked(upgrade)[0].pk)
    upgrade.look()
    upgrade.client().patch(upgrade.set_path, {"metadata": {"annotations": {"note": "look again"}}})
    assert lockstep.state(upgrade.operation).state == "held", "an approval moves nothing that is stopped"
    seen_now(lockstep)
    refused = lockstep.verb(upgrade.operation, "promote", {"reason": "go"})
    assert refused.status_code == 409
    assert upgrade.counts() == upgrade.first_row()
    upgrade.verb("resume", reason="over")
    upgrade.ends("succeeded")


@without_votes
def test_stop_in_the_middle_of_a_row(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    upgrade = four(lockstep, namespace, make_set)
    upgrade.comes_to("reach_row", row=3)
    upgrade.verb("stop", reason="wait")
    upgrade.found("stopped")
    stood = upgrade.counts()
    data = upgrade.client().get(upgrade.parameter_path)["data"]
    floors = {k.split(".", 1)[1]: v for k, v in data.items() if k.startswith("floor.")}
    ceilings = {k.split(".", 1)[1]: v for k, v in data.items() if k.startswith("ceil.")}
    assert floors == ceilings == {f"0.{label}.{role}": str(count) for (label, role), count in stood.items()}
    upgrade.verb("stop", reason="twice is once")
    upgrade.found("stopped")
    upgrade.verb("resume", reason="on")
    upgrade.ends("succeeded")


@without_votes
@pytest.mark.parametrize("step", ["open_hold", "write_roles", "read_revision"])
def test_stop_before_the_first_row(lockstep: Lockstep, namespace: str, make_set: MakeSet, step: str) -> None:
    upgrade = four(lockstep, namespace, make_set)
    upgrade.comes_to(step)
    upgrade.verb("stop", reason="wait")
    upgrade.found("stopped")
    assert upgrade.counts() == upgrade.before()
    upgrade.verb("resume", reason="on")
    upgrade.ends("succeeded")


def test_a_stopped_upgrade_goes_back(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set)
    upgrade.verb("stop", reason="an incident elsewhere")
    upgrade.found("stopped")
    upgrade.goes_back()


def test_a_row_off_plan_is_adopted_and_asks_anew(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    """What was approved for row 1 of the plan is nothing for row 1 of what stands now."""
    upgrade = four(lockstep, namespace, make_set, holds=["every-row"])
    upgrade.reached("waiting")
    lockstep.let_go(lockstep.state(upgrade.operation))

    def second_hold() -> bool:
        upgrade.look()
        return len(asked(upgrade)) == 2 and lockstep.state(upgrade.operation).state == "waiting"

    lockstep.until("the second hold", second_hold)
    path = f"/apis/{workloads.LWS_GROUP}/namespaces/{namespace}/leaderworkersets/model-{upgrade.old}-prefill"
    upgrade.client("break-glass").patch(path, {"spec": {"replicas": 2}})
    finding = upgrade.found("hold-breached")
    assert finding["facts"]["outside"]
    upgrade.verb("adopt", reason="we need the devices")
    upgrade.reached("waiting")
    first, second, third = asked(upgrade)
    assert (first.state, second.state, third.state) == ("approved", "stale", "open")
    assert third.step not in {first.step, second.step}
    memory, row = lockstep.state(upgrade.operation).memory, third.evidence["row"]
    assert [each[:2] for each in memory["rows"][:2]] == [[[4, 2], [0, 0]], [[2, 2], [1, 1]]]
    assert row > 1, "a hold never stands where fewer serve than the plan's minimum"
    stood = {(label, role): count for (label, role), count in upgrade.counts().items()}
    assert stood == {
        (label, role): count
        for label, side in ((upgrade.old, memory["rows"][row][0]), (upgrade.new, memory["rows"][row][1]))
        for role, count in zip(ROLES, side, strict=True)
        if count
    }
    upgrade.ends("succeeded", limit_s=90)
    assert upgrade.counts() == {(upgrade.new, "prefill"): 4, (upgrade.new, "decode"): 2}


def test_a_role_that_somebody_emptied_is_adopted(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    """The planner would give decode its group back; the controller never grows an old revision."""
    upgrade = at_first_hold(lockstep, namespace, make_set)
    path = f"/apis/{workloads.LWS_GROUP}/namespaces/{namespace}/leaderworkersets/model-{upgrade.old}-decode"
    upgrade.client("break-glass").patch(path, {"spec": {"replicas": 0}})
    upgrade.found("hold-breached")
    upgrade.verb("adopt", reason="it hung")
    upgrade.ends("succeeded")
    assert upgrade.counts() == {(upgrade.new, "prefill"): 2, (upgrade.new, "decode"): 1}


def test_an_adopted_row_goes_back_as_well(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set)
    path = f"/apis/{workloads.LWS_GROUP}/namespaces/{namespace}/leaderworkersets/model-{upgrade.old}-prefill"
    upgrade.client("break-glass").patch(path, {"spec": {"replicas": 1}})
    upgrade.found("hold-breached")
    upgrade.verb("adopt", reason="we need the devices")
    upgrade.reached("waiting")
    upgrade.goes_back()


# --- private Services


@without_votes
def test_private_services_come_with_the_first_whole_row_and_stay(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = four(lockstep, namespace, make_set)
    upgrade.comes_to("raise_row", row=1)
    assert upgrade.services(upgrade.new) == []
    upgrade.stands_at(1)
    assert upgrade.services(upgrade.new) == names_of(upgrade, upgrade.new)
    assert upgrade.services(upgrade.old) == names_of(upgrade, upgrade.old)
    upgrade.ends("succeeded")
    assert workloads.wait_settled(upgrade.client("admin"), namespace, "model") == upgrade.new
    until("the old Services to go", lambda: not upgrade.services(upgrade.old))
    assert upgrade.services(upgrade.new) == names_of(upgrade, upgrade.new)


@without_votes
def test_private_services_are_gone_after_an_abort(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = four(lockstep, namespace, make_set)
    upgrade.stands_at(2)
    assert upgrade.services(upgrade.new) == names_of(upgrade, upgrade.new)
    upgrade.verb("abort", reason="test")
    upgrade.ends("aborted")
    upgrade.went_back()
    assert upgrade.services(upgrade.old) == names_of(upgrade, upgrade.old)


def names_of(upgrade: Four, revision: str) -> list[str]:
    """What the controller calls the Services of a revision."""
    return sorted(f"model-{revision}-{role}-prv" for role in ROLES)
