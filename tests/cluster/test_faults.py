"""Parts of the cluster that fail while an upgrade runs: nothing moves past the box, and there is a way on and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.conf import settings

from controlplane.holds.guards import shipped_guards
from controlplane.operations.engine import wake
from controlplane.operations.models import Operation
from controlplane.upgrades.steps import rows
from deploy.rig import Api, ApiError, until, workloads
from deploy.rig.api import MERGE
from tests.cluster.driving import Lockstep
from tests.cluster.midway import (
    HOLD,
    V1,
    V2,
    Json,
    Midway,
    let_policies_settle,
    small_roles,
    started,
)

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
POLICIES = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture(autouse=True)
def often_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep comes round at once."""
    monkeypatch.setattr(settings, "LOCKSTEP_SWEEP", 0.5)


@pytest.fixture
def fresh(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> Midway:
    """An approved upgrade that nobody has worked on."""
    return started(lockstep, namespace, make_set)


def step_comes(midway: Midway, name: str) -> None:
    """Turn until the step is the next one."""

    def look() -> bool:
        wake(operation_id=midway.operation.pk)
        pending = midway.operation.steps.filter(state="pending").order_by("index").first()
        return pending is not None and pending.name.partition(".")[2] == name

    midway.lockstep.until(name, look)


def untouched(midway: Midway) -> None:
    """Nothing of the upgrade has reached the set."""
    images = [
        role["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"]
        for role in midway.live_roles()
    ]
    assert images == [V1, V1]
    assert midway.counts() == midway.before()


# --- before the write


def webhooks(client: Api, resource: str) -> Iterator[tuple[str, Json]]:
    """(address, configuration) with one webhook at least for the resource."""
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for found in client.items(f"{POLICIES}/{kind}"):
            if any(resource in rule["resources"] for hook in found["webhooks"] for rule in hook["rules"]):
                yield f"{POLICIES}/{kind}/{found['metadata']['name']}", found


def test_a_webhook_that_is_down_proves_no_hold(fresh: Midway) -> None:
    step_comes(fresh, "prove_hold")
    client = fresh.client("admin")
    for path, found in webhooks(client, "leaderworkersets"):
        for hook in found["webhooks"]:
            if any("leaderworkersets" in rule["resources"] for rule in hook["rules"]):
                hook["clientConfig"]["url"] = "https://127.0.0.1:1/away"
        client.request(
            "PUT", path, {**found, "kind": _kind(path), "apiVersion": "admissionregistration.k8s.io/v1"}
        )
    try:
        finding = fresh.found("hold-not-proved")
        assert all("failed calling webhook" in answer for answer in finding["facts"]["dry_runs"])
        untouched(fresh)
    finally:
        fresh.lockstep.rig.mend_webhooks()
    fresh.verb("retry", reason="mended")
    fresh.ends("succeeded")


def _kind(path: str) -> str:
    return "MutatingWebhookConfiguration" if "mutating" in path else "ValidatingWebhookConfiguration"


def test_no_policy_no_write(fresh: Midway, monkeypatch: pytest.MonkeyPatch) -> None:
    let_policies_settle(monkeypatch)
    step_comes(fresh, "prove_hold")
    fresh.client("stranger").delete(f"{POLICIES}/validatingadmissionpolicybindings/lockstep-rollout-hold")
    try:
        finding = fresh.found("hold-not-proved")
        assert "ValidatingAdmissionPolicyBinding lockstep-rollout-hold is missing" in finding["sentence"]
        untouched(fresh)
    finally:
        fresh.lockstep.rig.apply([dict(document) for document in shipped_guards()])
    fresh.verb("retry", reason="installed again")
    fresh.ends("succeeded")


def test_a_hold_that_refuses_only_us_is_no_hold(fresh: Midway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dry runs alone would pass: the edited policy lets the controller's account through."""
    let_policies_settle(monkeypatch)
    step_comes(fresh, "prove_hold")
    path = f"{POLICIES}/validatingadmissionpolicies/lockstep-rollout-hold"
    policy = fresh.client("admin").get(path)
    exempt = "request.userInfo.username != 'system:serviceaccount:lws-system:lws-controller-manager'"
    conditions = [*policy["spec"]["matchConditions"], {"name": "not-the-controller", "expression": exempt}]
    fresh.client("stranger").patch(path, {"spec": {"matchConditions": conditions}})
    try:
        finding = fresh.found("hold-not-proved")
        assert all(f"lockstep hold U-{fresh.operation.pk}: " in said for said in finding["facts"]["dry_runs"])
        assert finding["facts"]["guards"] == [
            "ValidatingAdmissionPolicy lockstep-rollout-hold differs from the shipped one"
        ]
        untouched(fresh)
    finally:
        fresh.client("admin").patch(path, {"spec": {"matchConditions": policy["spec"]["matchConditions"]}})
    fresh.verb("retry", reason="mended")
    fresh.ends("succeeded")


def test_every_webhook_down_is_waited_out_and_an_abort_needs_nothing(fresh: Midway) -> None:
    step_comes(fresh, "write_roles")
    fresh.lockstep.rig.break_webhooks()
    try:
        finding = fresh.found("attempts-used-up", limit_s=60)
        assert "failed calling webhook" in finding["sentence"]
        untouched(fresh)
    finally:
        fresh.lockstep.rig.mend_webhooks()
    fresh.goes_back()


# --- in the middle of a row


def test_a_restart_of_the_api_server_in_the_middle_of_a_row(
    fresh: Midway, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The manager needs some seconds to come back to its watches: here it gets all the touches that it really has.
    monkeypatch.setattr(rows, "TOUCHES", 10)
    step_comes(fresh, "reach_row")
    rig = fresh.lockstep.rig
    rig.stop_apiserver()
    try:
        fresh.lockstep.until(
            "a failed try", lambda: Operation.objects.get(pk=fresh.operation.pk).attempts, limit_s=20
        )
    finally:
        rig.start_apiserver()
    fresh.ends("succeeded")


def test_a_controller_that_stands_still_is_told_after_some_touches(midway: Midway) -> None:
    rig, client = midway.lockstep.rig, midway.client("admin")
    rig.stop_lws()
    for path, _ in list(webhooks(client, "disaggregatedsets")) + list(webhooks(client, "leaderworkersets")):
        try:
            client.delete(path)
        except Exception as error:  # one configuration holds both
            assert "404" in str(error)
    try:
        midway.lockstep.let_go(midway.lockstep.state(midway.operation))
        finding = midway.found("hold-not-released")
        assert "LeaderWorkerSet manager" in finding["next_action"]
        assert midway.counts() == midway.first_row()
    finally:
        rig.start_lws()
        rig.mend_webhooks()
    midway.verb("retry", reason="it runs again")
    midway.ends("succeeded")


def accepts(midway: Midway, replicas: int) -> bool:
    """Whether a dry run on the old prefill set is let through."""
    base = f"/apis/{workloads.LWS_GROUP}/namespaces/{midway.namespace}/leaderworkersets"
    path = f"{base}/model-{midway.old}-prefill"
    try:
        midway.client("stranger").request(
            "PATCH", path, {"spec": {"replicas": replicas}}, query={"dryRun": "All"}, content_type=MERGE
        )
    except ApiError:
        return False
    return True


def test_a_hold_made_again_without_its_keeper_needs_the_api_server_restarted(
    fresh: Midway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 1.36 an API server that has had no bound policy with ConfigMaps as parameters goes by what it saw last."""
    let_policies_settle(monkeypatch)
    step_comes(fresh, "prove_hold")
    for name in ("lockstep-rollout-hold", "lockstep-hold-keeper"):
        fresh.client("stranger").delete(f"{POLICIES}/validatingadmissionpolicybindings/{name}")
    until("the API server to forget the policy", lambda: accepts(fresh, 1))
    fresh.lockstep.rig.apply([dict(document) for document in shipped_guards()])
    until("the API server to know the policy", lambda: not accepts(fresh, 1))
    finding = fresh.found("hold-not-proved")
    assert finding["facts"]["guards"] == [] and "restart" in finding["next_action"]
    untouched(fresh)
    fresh.lockstep.rig.restart_apiserver()
    fresh.verb("retry", reason="restarted")
    fresh.ends("succeeded")


def test_what_ran_ahead_without_a_policy_can_be_adopted(midway: Midway) -> None:
    client = midway.client("stranger")
    client.delete(f"{POLICIES}/validatingadmissionpolicybindings/lockstep-rollout-hold")
    until("the API server to forget the policy", lambda: accepts(midway, 1))
    client.patch(midway.set_path, {"metadata": {"annotations": {"note": "look again"}}})
    ahead = {(midway.new, "prefill"): 2, (midway.new, "decode"): 1}
    until("the controller to run to the end", lambda: midway.counts() == ahead)
    finding = midway.found("hold-breached")
    assert finding["facts"]["outside"]
    midway.verb("retry", reason="it does not come back by itself")
    midway.found("hold-breached")
    midway.verb("adopt", reason="the new revision serves")
    midway.ends("succeeded")
    assert midway.counts() == ahead


# --- starts that are not whole, revisions that are left over


def quick_cure(midway: Midway) -> None:
    row = Operation.objects.get(pk=midway.operation.pk)
    row.memory = {**row.memory, "init_patience": 1}
    row.save(update_fields=["memory"])


def delete_one_new(midway: Midway) -> None:
    """Somebody deletes the new revision's decode set."""
    client = midway.client("stranger")

    def made() -> list[str]:
        names = [c["metadata"]["name"] for c in workloads.lws_of(client, midway.namespace, "model")]
        new = [name for name in names if midway.old not in name]
        return new if len(new) == 2 else []

    name = next(n for n in until("both new sets", made) if n.endswith("-decode"))
    path = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{midway.namespace}/leaderworkersets/{name}"
    client.delete(path)
    until(
        "it is gone",
        lambda: (
            name not in [c["metadata"]["name"] for c in workloads.lws_of(client, midway.namespace, "model")]
        ),
    )


@pytest.mark.parametrize("step", ["read_revision", "raise_row"])
def test_a_start_that_is_not_whole_is_cured(fresh: Midway, step: str) -> None:
    quick_cure(fresh)
    step_comes(fresh, step)
    delete_one_new(fresh)
    fresh.reached("waiting")
    assert fresh.counts() == fresh.first_row()
    cure = fresh.operation.steps.get(name="upgrades.cure_partial_init")
    assert cure.result["deleted"] == [f"model-{fresh.new}-prefill"]
    fresh.ends("succeeded")


def test_a_revision_that_is_not_whole_but_runs_is_left_to_a_person(midway: Midway) -> None:
    quick_cure(midway)
    delete_one_new(midway)
    finding = midway.found("partial-init-in-use")
    assert midway.new in finding["sentence"]
    midway.goes_back()


def test_what_the_controller_leaves_behind_is_scaled_to_0(midway: Midway) -> None:
    """A set in a role that spec.roles does not know is never drained by the controller."""
    midway.verb("abort", reason="test")
    step_comes(midway, "reach_back")
    until("the new revision to go", lambda: midway.counts() == midway.before())
    client = midway.client("break-glass")
    children = workloads.lws_of(client, midway.namespace, "model")
    body = next(c for c in children if c["metadata"]["name"] == f"model-{midway.old}-decode")
    strange = {workloads.ROLE_LABEL: "ghost", workloads.REVISION_LABEL: "deadbeef"}
    body["metadata"] = {
        "name": "model-deadbeef-ghost",
        "namespace": midway.namespace,
        "labels": {**body["metadata"]["labels"], **strange},
        "ownerReferences": body["metadata"]["ownerReferences"],
    }
    client.create({**body, "status": {}, "apiVersion": workloads.LWS_GROUP, "kind": "LeaderWorkerSet"})
    midway.ends("aborted")
    assert midway.counts() == midway.before()
    scaled = midway.operation.steps.get(name="upgrades.scale_leaked")
    assert scaled.result == {"scaled_to_0": ["model-deadbeef-ghost"]}


# --- the set itself


def gone(midway: Midway) -> None:
    midway.client("stranger").delete(midway.set_path)
    until(
        "the set and its children to be gone",
        lambda: not workloads.lws_of(midway.client("admin"), midway.namespace, "model"),
    )


@pytest.mark.parametrize("again", [True, False], ids=["created again", "gone"])
def test_a_set_that_is_lost_ends_the_abort_as_failed_and_holds_no_successor(
    midway: Midway, again: bool
) -> None:
    gone(midway)
    client = midway.client("admin")
    if again:
        client.create(workloads.disaggregated_set("model", midway.namespace, small_roles(V2)))
    midway.found("set-replaced" if again else "set-gone")
    midway.verb("abort", reason="it is gone")
    midway.ends("failed")
    last = midway.operation.steps.get(name="upgrades.finish", state="done")
    assert ("created again" if again else "no longer exists") in last.result["reason"]
    assert client.get(midway.parameter_path)["metadata"]["labels"][HOLD] == "released"
    if not again:
        client.create(workloads.disaggregated_set("model", midway.namespace, small_roles(V2)))
    successor = client.get(midway.set_path)
    assert "lockstep.dev/fence" not in successor["metadata"].get("annotations", {}), "not ours to write on"
    assert workloads.wait_settled(client, midway.namespace, "model") != midway.old


def test_a_set_that_is_replaced_during_the_abort_is_not_written(midway: Midway) -> None:
    midway.verb("abort", reason="test")
    step_comes(midway, "write_back")
    gone(midway)
    midway.client("admin").create(workloads.disaggregated_set("model", midway.namespace, small_roles(V2)))
    midway.ends("failed")
    assert midway.live_roles()[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0][
        "image"
    ] == (V2)
