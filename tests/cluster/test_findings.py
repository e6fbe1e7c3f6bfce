"""Somebody else at work on the set or on the hold while an upgrade runs: the findings, and the ways on and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from controlplane.holds.guards import shipped_guards
from deploy.rig import ApiError, Rig, until
from deploy.rig.api import MERGE
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import HOLD, V3, Midway, at_first_hold, let_policies_settle, look_often
from tests.cluster.watcher import observing

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation; holds need an approval."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="production") as running:
        yield running


@pytest.fixture
def midway(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> Midway:
    """An upgrade of 2 prefill and 1 decode groups that stands at its first hold."""
    return at_first_hold(lockstep, namespace, make_set)


# --- a third writer on the set


def test_a_third_template_is_found_with_its_writer_and_moves_nothing(midway: Midway) -> None:
    approved = midway.live_roles()
    with observing(midway.lockstep.rig.kubeconfig("admin"), midway.namespace, "model") as seen:
        midway.write_roles(midway.with_image(V3))
        finding = midway.found("foreign-write")
        assert finding["facts"]["writer"] == "python-urllib3" and "python-urllib3" in finding["sentence"]
        until("the second revision to be drained", lambda: midway.counts() == midway.before())
    strangers = {
        k for s in seen.states for k, count in s.items() if count and k[1] not in (midway.old, midway.new)
    }
    assert not strangers, "a template that nobody approved never gets a group"

    midway.write_roles(approved)
    until("the approved revision to come back", lambda: midway.counts() == midway.first_row())
    midway.verb("retry", reason="the other writer is stopped")
    midway.ends("succeeded")
    assert midway.counts() == {(midway.new, "prefill"): 2, (midway.new, "decode"): 1}


def test_a_retry_while_the_third_template_stands_finds_it_again_and_abort_is_open(midway: Midway) -> None:
    midway.write_roles(midway.with_image(V3))
    midway.found("foreign-write")
    midway.verb("retry", reason="try")
    midway.found("foreign-write")
    midway.goes_back()


def test_renamed_roles_under_a_hold_are_found_and_the_way_back_is_clean(midway: Midway) -> None:
    renamed = [
        {**role, "name": name} for role, name in zip(midway.live_roles(), ("fill", "code"), strict=True)
    ]
    midway.write_roles(renamed)
    midway.found("foreign-write")
    until(
        "the controller to be refused",
        lambda: "-fill 0 -> 2, allowed 0..0" in midway.lockstep.rig.log("lws", 400),
    )
    assert {role for _, role in midway.counts()} == {"prefill", "decode"}
    midway.goes_back()


def test_more_replicas_at_a_hold_grow_nothing_and_survive_the_abort(midway: Midway) -> None:
    roles = midway.live_roles()
    roles[0]["spec"]["replicas"] = 5
    midway.write_roles(roles)
    midway.found("foreign-write")
    assert midway.counts() == midway.first_row()
    midway.verb("abort", reason="test")
    midway.ends("aborted")
    assert midway.live_roles()[0]["spec"]["replicas"] == 5, (
        "somebody else's wish, not this operation's to undo"
    )
    midway.lockstep.until("5 groups", lambda: midway.counts().get((midway.old, "prefill")) == 5)


def test_an_abort_by_hand_works_while_the_hold_stands(midway: Midway) -> None:
    import json

    data = midway.client("stranger").get(midway.parameter_path)["data"]
    assert data["operation"] == f"U-{midway.operation.pk}"
    midway.client("stranger").patch(midway.set_path, json.loads(data["old-roles"]))
    until("the old revision alone", lambda: midway.counts() == midway.before())
    midway.found("foreign-write")
    midway.goes_back()


def test_scaling_past_the_hold_is_refused_with_our_name(midway: Midway) -> None:
    base = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{midway.namespace}/leaderworkersets"
    path = f"{base}/model-{midway.old}-prefill/scale"
    with pytest.raises(ApiError, match=f"lockstep hold U-{midway.operation.pk}: scaling through /scale"):
        midway.client("stranger").patch(path, {"spec": {"replicas": 9}})
    midway.look()
    assert midway.lockstep.state(midway.operation).state == "waiting"


# --- somebody at the hold itself


def relabelled(midway: Midway) -> None:
    midway.client("break-glass").patch(midway.parameter_path, {"metadata": {"labels": {HOLD: "released"}}})


def forged(midway: Midway) -> None:
    wide = {f"ceil.0.{midway.new}.prefill": "9", f"floor.0.{midway.old}.prefill": "0"}
    midway.client("break-glass").patch(midway.parameter_path, {"data": wide})


def deleted(midway: Midway) -> None:
    midway.client("break-glass").delete(midway.parameter_path)


def renamed(midway: Midway) -> None:
    midway.client("break-glass").patch(midway.parameter_path, {"data": {"set": "another"}})


def garbled(midway: Midway) -> None:
    midway.client("break-glass").patch(
        midway.parameter_path, {"data": {f"ceil.0.{midway.new}.prefill": "many"}}
    )


@pytest.mark.parametrize("break_it", [relabelled, forged, deleted, renamed, garbled])
def test_a_breached_hold_is_put_back_and_told(midway: Midway, break_it: Callable[[Midway], None]) -> None:
    """The controller is away meanwhile: what it does in an open moment is played by the next test."""
    stood = midway.client("admin").get(midway.parameter_path)
    midway.lockstep.rig.pause("lws")
    try:
        break_it(midway)
        midway.look()
        midway.look()
        finding = midway.found("hold-breached")
    finally:
        midway.lockstep.rig.resume("lws")
    now = midway.client("admin").get(midway.parameter_path)
    assert now["metadata"]["labels"][HOLD] == "true"
    same = {k: v for k, v in stood["data"].items() if k != "fence"}
    assert {k: v for k, v in now["data"].items() if k != "fence" and v != "0"} == {
        k: v for k, v in same.items() if v != "0"
    }
    assert finding["facts"]["wrong"] and midway.counts() == midway.first_row()
    midway.verb("retry", reason="we know who it was")
    midway.ends("succeeded")


def test_counts_outside_the_box_are_a_breach_until_they_are_back(midway: Midway) -> None:
    base = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{midway.namespace}/leaderworkersets"
    path = f"{base}/model-{midway.old}-prefill"
    midway.client("break-glass").patch(path, {"spec": {"replicas": 1}})
    finding = midway.found("hold-breached")
    assert any("prefill" in text and "allowed 2..2" in text for text in finding["facts"]["outside"])
    midway.verb("retry", reason="look again")
    midway.found("hold-breached")
    midway.client("break-glass").patch(path, {"spec": {"replicas": 2}})
    midway.verb("retry", reason="it is back")
    midway.ends("succeeded")


GUARDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


@pytest.mark.parametrize("kind", sorted(GUARDS))
@pytest.mark.parametrize("name", ["lockstep-rollout-hold", "lockstep-hold-guard", "lockstep-hold-keeper"])
def test_a_deleted_guard_is_made_again_as_shipped_and_told(
    midway: Midway, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    """The controller is away meanwhile: what it may do without a policy is another test's."""
    path = f"/apis/admissionregistration.k8s.io/v1/{GUARDS[kind]}/{name}"
    stood = midway.client("admin").get(path)
    let_policies_settle(monkeypatch)
    midway.lockstep.rig.pause("lws")
    try:
        midway.client("stranger").delete(path)
        finding = midway.found("hold-breached")
        assert f"{kind} {name} is missing" in finding["sentence"]
        assert midway.client("admin").get(path)["spec"] == stood["spec"], "as shipped, to the letter"
        until("the hold to be enforced again", lambda: not scales(midway))
    finally:
        midway.lockstep.rig.resume("lws")
    midway.verb("retry", reason="it was us")
    midway.ends("succeeded")
    assert midway.operation.steps.filter(name="upgrades.prove_hold", state="done").count() == 2, (
        "proved again"
    )


def scales(midway: Midway) -> bool:
    """Whether the API server would scale a child; no webhook is asked about this."""
    base = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{midway.namespace}/leaderworkersets"
    path = f"{base}/model-{midway.old}-prefill/scale"
    try:
        midway.client("stranger").request(
            "PATCH", path, {"spec": {"replicas": 1}}, query={"dryRun": "All"}, content_type=MERGE
        )
    except ApiError:
        return False
    return True


def test_an_edited_policy_is_told_and_never_overwritten(
    midway: Midway, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_policies_settle(monkeypatch)
    rig = midway.lockstep.rig
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/lockstep-rollout-hold"
    change = {"spec": {"failurePolicy": "Ignore"}}
    midway.client("stranger").patch(path, change)
    try:
        finding = midway.found("hold-breached")
        assert "lockstep-rollout-hold differs from the shipped one" in finding["sentence"]
        midway.verb("retry", reason="look again")
        assert "differs from the shipped one" in midway.found("hold-not-proved")["sentence"]
        assert midway.client("admin").get(path)["spec"]["failurePolicy"] == "Ignore", "a person's to mend"
    finally:
        rig.apply([dict(document) for document in shipped_guards()])
    midway.verb("retry", reason="mended")
    midway.ends("succeeded")


def test_an_abort_needs_no_policy(midway: Midway) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/lockstep-rollout-hold"
    stood = midway.client("admin").get(path)
    midway.client("stranger").delete(path)
    try:
        midway.verb("abort", reason="test")
        midway.ends("aborted")
    finally:
        for key in ("resourceVersion", "uid", "creationTimestamp", "generation"):
            stood["metadata"].pop(key, None)
        try:
            midway.client("admin").create(stood)
        except ApiError as error:
            assert error.status == 409, error
    assert midway.counts() == midway.before()
