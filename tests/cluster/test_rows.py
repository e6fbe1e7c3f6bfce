"""Row by row: engines that do not get ready, holds of every kind, stop, adopt, what a plan's options do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from controlplane.approvals.models import ChangeRequest
from controlplane.audit.models import AuditEvent
from controlplane.operations.models import Operation
from controlplane.upgrades.models import Plan, UpdateRecord
from deploy.rig import ApiError, Rig, until, workloads
from deploy.rig.api import MERGE
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.four import Four, four, seen_now
from tests.cluster.midway import V1, V2, Midway, at_first_hold, look_often, small_roles, started
from tests.cluster.watcher import observing

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
Json = dict[str, Any]
ROLES = ("prefill", "decode")


@pytest.fixture(params=["production"])
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Lockstep]:
    """A fresh installation; in production holds need votes, in development they do not."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment=request.param) as running:
        yield running


without_votes = pytest.mark.parametrize("lockstep", ["development"], indirect=True)


def begun(lockstep: Lockstep, namespace: str, make_set: MakeSet, changes: Json, **options: Any) -> Midway:
    """A started upgrade of 2 prefill and 1 decode groups; `changes` go to both roles."""
    old = make_set(roles=small_roles())
    plan = lockstep.draft(
        lockstep.observe(namespace, "model"), {"roles": dict.fromkeys(ROLES, changes)}, **options
    )
    assert plan["state"] == "ready", plan
    return Midway(lockstep, namespace, lockstep.start(plan), old)


def remembered(upgrade: Midway, **values: Any) -> None:
    """Change what the operation remembers, for times that an option cannot make so short."""
    row = Operation.objects.get(pk=upgrade.operation.pk)
    row.memory = {**row.memory, **values}
    row.save(update_fields=["memory"])


def done(upgrade: Midway, step: str) -> list[Json]:
    """Arguments of every finished step of this name, in order."""
    found = upgrade.operation.steps.filter(name=f"upgrades.{step}", state="done").order_by("index")
    return list(found.values_list("args", flat=True))


def asked(upgrade: Midway) -> list[ChangeRequest]:
    """The step approvals of the operation, oldest first."""
    found = ChangeRequest.objects.filter(subject_kind="operations.hold", subject_id=str(upgrade.operation.pk))
    return list(found.order_by("id"))


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


# --- holds


def test_every_row_asks_for_itself(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    upgrade = four(lockstep, namespace, make_set, holds=["every-row"])
    stood = []

    def step() -> bool:
        now = lockstep.state(upgrade.operation)
        if now.state == "waiting":
            request = asked(upgrade)[-1]
            assert request.state == "open", "an approval for one hold never passes the next"
            stood.append(int(request.evidence["row"]))
            assert upgrade.counts() == upgrade.at_row(stood[-1])
            lockstep.let_go(now)
        upgrade.look()
        return now.state == "succeeded"

    lockstep.until("the end", step, limit_s=90)
    assert stood == [1, 2, 3, 4, 5, 6, 7]
    assert {request.state for request in asked(upgrade)} == {"approved"}
    assert len({request.digest for request in asked(upgrade)}) == 7


@pytest.mark.parametrize(("rule", "row"), [("half", 3), ("last-old-groups", 7)])
@without_votes
def test_a_rule_stops_at_its_row(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, rule: str, row: int
) -> None:
    upgrade = four(lockstep, namespace, make_set, holds=[rule], promote="manual")
    upgrade.reached("waiting", limit_s=60)
    assert upgrade.counts() == upgrade.at_row(row)
    assert rule in lockstep.state(upgrade.operation).waits_for["what"]
    seen_now(lockstep)
    upgrade.ends("succeeded")


@without_votes
def test_a_promote_passes_the_hold_that_was_seen_and_no_other(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = started(lockstep, namespace, make_set, promote="manual")
    early = lockstep.verb(upgrade.operation, "promote", {"reason": "too early"})
    assert (early.status_code, early.json()["code"]) == (409, "not-at-a-hold")

    upgrade.reached("waiting")
    first = lockstep.state(upgrade.operation)
    key = first.waits_for["hold_key"]
    blind = lockstep.verb(upgrade.operation, "promote", {"reason": "nobody looked"})
    assert (blind.status_code, blind.json()["code"]) == (409, "view-is-stale")
    seen_now(lockstep)
    upgrade.verb("promote", reason="it serves")
    after = lockstep.post(lockstep.operator, f"operations/{first.pk}/promote", {}, version=first.version)
    assert (after.status_code, after.json()["code"]) == (412, "stale-edit")

    upgrade.reached("waiting")
    second = lockstep.state(upgrade.operation).waits_for["hold_key"]
    assert second != key and second.endswith("-row-3"), "the last old groups ask for themselves"
    for _ in range(3):
        upgrade.look()
    assert lockstep.state(upgrade.operation).waits_for["hold_key"] == second
    seen_now(lockstep)
    upgrade.ends("succeeded")


def test_votes_first_and_then_a_person(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set, promote="manual")
    now = lockstep.state(upgrade.operation)
    assert now.waits_for["who"] == "approvers" and not now.waits_for["hold_key"]
    seen_now(lockstep)
    early = lockstep.verb(upgrade.operation, "promote", {"reason": "impatient"})
    assert (early.status_code, early.json()["code"]) == (409, "not-at-a-hold")
    lockstep.approve(asked(upgrade)[0].pk)

    def asks_operators() -> bool:
        upgrade.look()
        return lockstep.state(upgrade.operation).waits_for.get("who") == "operators"

    lockstep.until("a promote is asked for", asks_operators)
    assert upgrade.counts() == upgrade.first_row()
    seen_now(lockstep)
    upgrade.ends("succeeded")


def test_a_hold_that_is_too_old_goes_back_by_itself(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set, hold_max_age=60, hold_end="abort")
    waits = lockstep.state(upgrade.operation).waits_for
    age = datetime.fromisoformat(waits["until"]) - datetime.fromisoformat(waits["since"])
    assert timedelta(seconds=55) < age <= timedelta(seconds=60) and waits["then"] == "the operation aborts"
    assert asked(upgrade)[0].expires_at == datetime.fromisoformat(waits["until"]), "the only countdown"
    grow_older(upgrade)
    upgrade.ends("rolled-back")
    assert upgrade.counts() == upgrade.before()
    assert workloads.wait_settled(upgrade.client("admin"), namespace, "model") == upgrade.old
    assert UpdateRecord.objects.get(operation=upgrade.operation).outcome == "rolled-back"
    assert asked(upgrade)[0].state in {"stale", "expired"}
    row = AuditEvent.objects.get(action="upgrades.hold", after__effect="abort")
    assert "maximum age" in row.after["facts"]["reason"]


def test_a_hold_that_is_kept_stays_however_old(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set, hold_max_age=60, hold_end="keep")
    grow_older(upgrade)
    for _ in range(3):
        upgrade.look()
    now = lockstep.state(upgrade.operation)
    assert (now.state, now.phase, now.waits_for["until"]) == ("waiting", "forward", None)
    assert now.waits_for["then"] == "it keeps standing here"
    upgrade.ends("succeeded")


def grow_older(upgrade: Midway) -> None:
    """Let an hour go by at the hold."""
    kept = upgrade.lockstep.state(upgrade.operation).memory["hold_since"]
    older = {key: (datetime.fromisoformat(at) - timedelta(hours=1)).isoformat() for key, at in kept.items()}
    remembered(upgrade, hold_since=older)


def test_a_rejected_hold_is_held_and_a_retry_asks_again(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set)
    (first,) = asked(upgrade)
    said = lockstep.vote(first.pk, lockstep.people.approver, "reject", "latency doubled")
    assert said.status_code in (200, 201), said.json()
    finding = upgrade.found("step-rejected")
    assert finding["facts"]["request"] == first.pk
    upgrade.verb("resume", reason="the same attempt")
    upgrade.found("step-rejected")
    assert len(asked(upgrade)) == 1, "a resume does not ask again"

    upgrade.verb("retry", reason="mended")
    upgrade.reached("waiting")
    again = asked(upgrade)[-1]
    assert (again.pk > first.pk, again.attempt, again.step) == (True, first.attempt + 1, first.step)
    assert again.digest != first.digest
    assert upgrade.counts() == upgrade.first_row()
    upgrade.ends("succeeded")


def test_votes_that_are_collected_for_an_attempt_that_is_over_are_closed(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    upgrade = at_first_hold(lockstep, namespace, make_set)
    (first,) = asked(upgrade)
    approved = upgrade.live_roles()
    upgrade.write_roles(upgrade.with_image("registry.example/engine:v3"))
    upgrade.found("foreign-write")
    upgrade.write_roles(approved)
    until("the approved revision to come back", lambda: upgrade.counts() == upgrade.first_row())
    upgrade.verb("retry", reason="stopped that writer")
    upgrade.reached("waiting")
    first.refresh_from_db()
    assert first.state == "stale"
    late = lockstep.vote(first.pk, lockstep.people.approver)
    assert (late.status_code, late.json()["code"]) == (409, "request-not-open")
    assert [request.state for request in asked(upgrade)] == ["stale", "open"]
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


# --- replicas that change between plan and start


def scaled(lockstep: Lockstep, namespace: str, prefill: int) -> None:
    """Somebody scales the set, and it settles."""
    client = lockstep.rig.client("stranger")
    path = workloads.set_path(namespace, "model")
    roles = client.get(path)["spec"]["roles"]
    roles[0]["spec"]["replicas"] = prefill
    client.patch(path, {"spec": {"roles": roles}})
    workloads.wait_settled(lockstep.rig.client(), namespace, "model")


def checked_again(lockstep: Lockstep, plan: Json) -> Json:
    """The plan after another check."""
    now = lockstep.operator.get(f"/api/v1/plans/{plan['id']}").json()
    said = lockstep.post(lockstep.operator, f"plans/{plan['id']}/check", version=now["version"])
    assert said.status_code == 200, said.json()
    return lockstep.checked(plan["id"])


def approved_plan(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, **options: Any
) -> tuple[Json, int, str]:
    """An approved plan of 3 and 1 groups, its request, and the old label."""
    old = make_set(roles=[workloads.role("prefill", 3, image=V1), workloads.role("decode", 1, image=V1)])
    draft = {"roles": {role: {"image": V2} for role in ROLES}}
    plan = lockstep.draft(lockstep.observe(namespace, "model"), draft, **options)
    request = lockstep.request(plan)
    lockstep.approve(request)
    return plan, request, old


def try_start(lockstep: Lockstep, plan: Json) -> Any:
    """Start at the present version, its warnings acknowledged."""
    now = lockstep.acknowledge(lockstep.operator.get(f"/api/v1/plans/{plan['id']}").json())
    return lockstep.post(lockstep.operator, f"plans/{plan['id']}/start", version=now["version"])


def test_fewer_groups_within_the_bounds_keep_the_votes(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    plan, request, old = approved_plan(
        lockstep, namespace, make_set, minimum_ready={"prefill": 1, "decode": 1}
    )
    scaled(lockstep, namespace, 2)
    again = checked_again(lockstep, plan)
    assert again["digest"] == plan["digest"] and again["rows"]["initial"] == [2, 1]
    assert ChangeRequest.objects.get(pk=request).state == "approved"
    begun_ = try_start(lockstep, plan)
    assert begun_.status_code == 201, begun_.json()
    upgrade = Midway(lockstep, namespace, Operation.objects.get(pk=begun_.json()["operation"]), old)
    upgrade.ends("succeeded")
    assert upgrade.counts() == {(upgrade.new, "prefill"): 2, (upgrade.new, "decode"): 1}


@pytest.mark.parametrize(("prefill", "why"), [(5, "devices"), (2, "ready")])
def test_worse_bounds_void_the_votes(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, prefill: int, why: str
) -> None:
    plan, request, _ = approved_plan(lockstep, namespace, make_set)
    scaled(lockstep, namespace, prefill)
    again = checked_again(lockstep, plan)
    assert again["digest"] != plan["digest"]
    row = ChangeRequest.objects.get(pk=request)
    assert row.state == "stale"
    voided = AuditEvent.objects.filter(target_kind="change-request", target_id=str(request)).order_by("-id")
    assert "bounds got worse" in voided[0].reason and why in voided[0].reason, voided[0].reason
    refused = try_start(lockstep, plan)
    assert (refused.status_code, refused.json()["code"]) == (409, "not-approved")


def test_a_set_that_was_scaled_after_the_check_is_not_written(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    plan, _, old = approved_plan(lockstep, namespace, make_set)
    scaled(lockstep, namespace, 2)
    begun_ = try_start(lockstep, plan)
    assert begun_.status_code == 201, begun_.json()
    upgrade = Midway(lockstep, namespace, Operation.objects.get(pk=begun_.json()["operation"]), old)
    upgrade.found("foreign-write")
    assert done(upgrade, "open_hold") == []
    upgrade.verb("abort", reason="check again")
    upgrade.ends("aborted")
    assert upgrade.counts() == {(old, "prefill"): 2, (old, "decode"): 1}, "scaled as somebody wished"


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
