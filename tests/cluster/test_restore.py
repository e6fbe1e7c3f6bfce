"""A combination is put back on a real control plane: whatever state the restore finds, in one operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane.audit.actor import command
from controlplane.operations.contract import PlannedStep
from controlplane.operations.creation import NewOperation, Target, create_operation
from controlplane.operations.models import Operation
from controlplane.operations.pauses import automation_paused
from controlplane.recovery.models import Combination, Restore
from deploy.rig import Rig, workloads
from tests.cluster.driving import Lockstep, install_target, lockstep_on
from tests.cluster.midway import HOLD, V1, V2, small_roles
from tests.cluster.restoring import (
    asked,
    capture,
    held,
    image_ids,
    look_often,
    midway_with_combination,
    parts,
    restore,
    roles_written,
    rolled_out,
    start,
    turned,
    upgraded,
)

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
Json = dict[str, Any]


@pytest.fixture
def lockstep(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lockstep]:
    """A fresh installation whose plans need votes."""
    install_target(rig)
    look_often(monkeypatch)
    with lockstep_on(rig, environment="production") as running:
        yield running


def prompts_mounted(rig: Rig, namespace: str, make_set: MakeSet, **more: Any) -> Json:
    """A ConfigMap that the prefill groups of a set mount, with `more` in it."""
    body: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "prompts", "namespace": namespace},
        "data": {"a.txt": "as it was"},
        **more,
    }
    rig.client().create(body)
    mounts = {"volumes": [{"name": "prompts", "configMap": {"name": "prompts"}}]}
    make_set(roles=[workloads.role("prefill", 1, pod=mounts), workloads.role("decode", 1)])
    return body


def test_after_success_with_the_old_sets_gone(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    label = make_set(roles=small_roles())
    found, ids = capture(lockstep, namespace, "model"), image_ids(lockstep, namespace, "model")
    before = lockstep.rig.client().get(workloads.set_path(namespace, "model"))["spec"]
    upgraded(lockstep, namespace)
    assert label not in {revision for revision, _ in lockstep.counts(namespace, "model")}

    plan = asked(lockstep, f"combinations/{found.pk}/plan").result
    assert [part["name"] for part in plan["parts"]] == ["workload"]
    assert plan["parts"][0]["way"] == "anew" and plan["estimate"]["beside"] == 3

    restored = restore(lockstep, found)
    operation = turned(lockstep, restored)
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == label
    assert lockstep.rig.client().get(workloads.set_path(namespace, "model"))["spec"] == before
    assert image_ids(lockstep, namespace, "model") == ids
    assert operation.memory["bits"]["verdict"] == "same-bits"
    assert parts(lockstep, restored) == [("workload", True)]
    parameter = lockstep.rig.client().get(f"/api/v1/namespaces/lockstep/configmaps/hold-{namespace}.model")
    assert parameter["metadata"]["labels"][HOLD] == "released"


def test_what_serves_keeps_its_groups_until_the_good_revision_is_whole(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    """The new side stands complete and ready before one group of the old side goes."""
    label = make_set(roles=small_roles())
    found = capture(lockstep, namespace, "model")
    upgraded(lockstep, namespace)
    (bad,) = {revision for (revision, _), count in lockstep.counts(namespace, "model").items() if count}
    restored, seen = restore(lockstep, found), []
    operation = Operation.objects.get(pk=restored.operation_id)

    def over() -> bool:
        seen.append(lockstep.counts(namespace, "model"))
        return lockstep.state(operation).state == "succeeded"

    lockstep.until("restored", over, limit_s=60)
    for counts in seen:
        if counts.get((bad, "prefill"), 0) < 2 or counts.get((bad, "decode"), 0) < 1:
            assert (counts[label, "prefill"], counts[label, "decode"]) == (2, 1)
    assert any(counts.get((bad, "prefill")) == counts.get((label, "prefill")) == 2 for counts in seen)


def test_the_names_that_engines_look_for_are_there_before_the_good_revision_is_complete(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    """The held controller ends in a refused step, and makes no Service of a revision until nothing holds it back."""
    label = make_set(roles=small_roles())
    found = capture(lockstep, namespace, "model")
    upgraded(lockstep, namespace)
    operation = Operation.objects.get(pk=restore(lockstep, found).operation_id)
    lockstep.until(
        "Services published",
        lambda: (
            lockstep.state(operation).steps.filter(name="recovery.publish_services", state="done").exists()
        ),
    )
    assert not lockstep.state(operation).steps.filter(name="recovery.drain_old", state="done").exists()
    services = lockstep.rig.client().get(f"/api/v1/namespaces/{namespace}/services")["items"]
    names = {each["metadata"]["name"] for each in services}
    assert {f"model-{label}-{role}-prv" for role in ("prefill", "decode")} <= names
    lockstep.until("restored", lambda: lockstep.state(operation).state == "succeeded", limit_s=60)


def test_fewer_groups_come_back_than_stand(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    label = make_set(roles=small_roles())
    found = capture(lockstep, namespace, "model")
    rolled_out(
        lockstep.rig,
        namespace,
        "model",
        [workloads.role("prefill", 4, image=V2), workloads.role("decode", 3, image=V2)],
    )
    turned(lockstep, restore(lockstep, found))
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == label
    counts = {key: count for key, count in lockstep.counts(namespace, "model").items() if count}
    assert counts == {(label, "prefill"): 2, (label, "decode"): 1}


def test_in_the_middle_of_a_rollout_it_takes_over_from_the_upgrade(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    midway = midway_with_combination(lockstep, namespace, make_set)
    found = Combination.objects.get()
    restored = restore(lockstep, found)
    upgrade = lockstep.state(midway.operation)
    assert upgrade.state == "superseded" and not upgrade.targets.filter(released=False).exists()
    assert restored.superseded_id == upgrade.pk
    done_before = upgrade.steps.filter(state="done").count()
    turned(lockstep, restored)
    assert midway.counts() == midway.before()
    assert workloads.wait_settled(midway.client("admin"), namespace, "model") == midway.old
    assert midway.client("admin").get(midway.parameter_path)["metadata"]["labels"][HOLD] == "released"
    assert upgrade.steps.filter(state="done").count() == done_before, "the superseded one runs no step more"
    names = [step.name for step in Operation.objects.get(pk=restored.operation_id).steps.order_by("index")]
    assert "recovery.reach_whole" not in names, "both were alive: nothing had to be started anew"


def test_automation_stays_paused_until_a_person_resumes_it(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    make_set(roles=small_roles())
    found = capture(lockstep, namespace, "model")
    where: Json = {"cluster": lockstep.cluster, "namespace": namespace, "name": "model"}
    assert automation_paused(**where) is None
    restored = restore(lockstep, found)
    turned(lockstep, restored)
    assert parts(lockstep, restored) == [], "nothing differed, so nothing was put back"
    assert "restored" in str(automation_paused(**where))
    (pause,) = lockstep.operator.get("/api/v1/automation-pauses").json()["results"]
    said = lockstep.post(
        lockstep.operator, f"automation-pauses/{pause['id']}/resume", {"reason": "looked at"}, version=1
    )
    assert said.status_code == 200 and automation_paused(**where) is None


def test_somebody_else_closes_the_review(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    make_set(roles=small_roles())
    restored = restore(lockstep, capture(lockstep, namespace, "model"))
    turned(lockstep, restored)
    own = lockstep.vote(restored.review_id, lockstep.people.operator)
    assert own.status_code == 403
    assert lockstep.vote(restored.review_id, lockstep.people.approver).status_code == 200
    shown = lockstep.operator.get(f"/api/v1/restores/{restored.pk}").json()
    assert shown["review_state"] == "approved"


def test_a_candidate_needs_votes_beforehand(lockstep: Lockstep, namespace: str, make_set: MakeSet) -> None:
    label = make_set(roles=small_roles())
    found = capture(lockstep, namespace, "model", verified=False)
    upgraded(lockstep, namespace)
    refused = start(lockstep, found)
    assert (refused.status_code, refused.json()["code"]) == (409, "not-approved")
    request = lockstep.post(
        lockstep.operator, f"combinations/{found.pk}/request", {"reason": "test"}, version=found.version
    )
    assert request.status_code == 201, request.json()
    lockstep.approve(request.json()["id"])
    restored = restore(lockstep, found)
    assert restored.review_id is None
    turned(lockstep, restored)
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == label


def test_a_config_map_that_was_edited_in_between_comes_back(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    client = lockstep.rig.client()
    body = prompts_mounted(lockstep.rig, namespace, make_set, binaryData={"b.bin": "AAEC"})
    found = capture(lockstep, namespace, "model")
    path = f"/api/v1/namespaces/{namespace}/configmaps/prompts"
    client.patch(path, {"data": {"a.txt": "edited", "new.txt": "added"}})
    diff = asked(lockstep, f"combinations/{found.pk}/diff").result["parts"]
    (changed,) = [part for part in diff if part["verdict"] == "differs"]
    assert (changed["part"], changed["name"], changed["what"]) == (
        "config-map", "prompts", ["key a.txt", "key new.txt"]
    )  # fmt: skip
    restored = restore(lockstep, found)
    turned(lockstep, restored)
    assert parts(lockstep, restored) == [("config-maps", True)]
    stands = client.get(path)
    assert (stands["data"], stands["binaryData"]) == (body["data"], body["binaryData"])
    client.delete(path)
    turned(lockstep, restore(lockstep, found))
    assert client.get(path)["data"] == body["data"]


def test_an_immutable_one_that_differs_is_said_and_the_rest_is_not_begun(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    client, path = lockstep.rig.client(), f"/api/v1/namespaces/{namespace}/configmaps/prompts"
    body = prompts_mounted(lockstep.rig, namespace, make_set, immutable=True)
    found = capture(lockstep, namespace, "model")
    client.delete(path)
    client.create({**body, "data": {"a.txt": "other"}})
    restored = restore(lockstep, found)
    finding = held(lockstep, restored, "config-map-immutable")
    assert [(part["name"], part["done"]) for part in finding["facts"]["parts"]] == [("config-maps", False)]
    client.delete(path)
    operation = Operation.objects.get(pk=restored.operation_id)
    assert lockstep.verb(operation, "retry").status_code == 200
    turned(lockstep, restored)
    assert client.get(path)["data"] == body["data"] and client.get(path)["immutable"] is True


def test_a_mutable_tag_that_moved_is_the_same_template_and_not_the_same_bits(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    label = make_set(roles=small_roles())
    found = capture(lockstep, namespace, "model")
    # What the tag meant when it was recorded: the registry has moved it since.
    document: Json = found.document
    for containers in document["workload"]["images"].values():
        for each in containers.values():
            each["image_ids"] = ["registry.example/engine@sha256:" + "0" * 64]
    found.save(update_fields=["document"])
    upgraded(lockstep, namespace)
    operation = turned(lockstep, restore(lockstep, found))
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == label
    assert operation.memory["bits"]["verdict"] == "same-template"
    assert any("recorded was" in said for said in operation.memory["bits"]["what"])


def test_an_abort_stops_where_it_stands_and_lets_the_hold_go(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    label, restored, operation = roles_written(lockstep, namespace, make_set)
    assert lockstep.verb(operation, "abort", {"reason": "test"}).status_code == 200
    turned(lockstep, restored, "aborted")
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == label
    closed = Restore.objects.get(pk=restored.pk)
    assert closed.document["outcome"] == "aborted" and closed.document["parts"][0]["done"] is False


def test_a_stop_freezes_the_counts_and_a_resume_goes_on(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    label, restored, operation = roles_written(lockstep, namespace, make_set)
    assert lockstep.verb(operation, "stop", {"reason": "wait a moment"}).status_code == 200
    held(lockstep, restored, "stopped")
    path = f"/api/v1/namespaces/lockstep/configmaps/hold-{namespace}.model"
    data = lockstep.rig.client().get(path)["data"]
    bounds = {key: value for key, value in data.items() if key.startswith(("floor.", "ceil."))}
    for (revision, role), count in lockstep.counts(namespace, "model").items():
        assert bounds[f"floor.0.{revision}.{role}"] == bounds[f"ceil.0.{revision}.{role}"] == str(count)
    assert lockstep.verb(operation, "resume", {"reason": "go on"}).status_code == 200
    turned(lockstep, restored)
    assert workloads.wait_settled(lockstep.rig.client(), namespace, "model") == label
    assert lockstep.rig.client().get(path)["metadata"]["labels"][HOLD] == "released"


def test_somebody_elses_roles_are_told_and_written_over_after_a_retry(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    label, restored, operation = roles_written(lockstep, namespace, make_set)
    client, path = lockstep.rig.client("stranger"), workloads.set_path(namespace, "model")
    client.patch(path, {"spec": {"roles": small_roles("registry.example/engine:v9")}})
    finding = held(lockstep, restored, "foreign-write")
    assert finding["facts"]["parts"][0]["done"] is False
    assert lockstep.verb(operation, "retry").status_code == 200
    turned(lockstep, restored)
    assert workloads.wait_settled(client, namespace, "model") == label


def test_steps_of_another_operation_capture_publish_and_verify(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    """As an upgrade does it: before it writes, and when what stands is proved."""
    make_set(roles=small_roles())
    uid = lockstep.observe(namespace, "model").uid
    operation = create_operation(
        new=NewOperation(
            kind="some-change",
            subject_id="1",
            digest="sha256:1",
            cluster=lockstep.cluster,
            namespace=namespace,
            title="Some change",
            reason="",
            targets=[Target("set", uid)],
            steps=[
                PlannedStep("recovery.capture", {"reason": "before"}),
                PlannedStep("recovery.publish_copies"),
                PlannedStep("recovery.verify_captured"),
                PlannedStep("recovery.capture", {"reason": "after", "verified": True}),
            ],
            abort_step="",
            memory={"namespace": namespace, "name": "model", "uid": uid},
        ),
        started_by=lockstep.people.operator,
        actor=command("test"),
    )
    lockstep.until("all steps", lambda: not operation.steps.filter(state="pending").exists())
    found = Combination.objects.get()
    assert (found.state, found.evidence) == ("verified", {"kind": "operation", "id": operation.pk})
    first, *_, last = operation.steps.order_by("index")
    assert (first.result["new"], last.result["new"]) == (True, False), "the same state is one combination"
    copy = lockstep.rig.client().get(
        f"/api/v1/namespaces/lockstep/configmaps/combination-{namespace}.model-1"
    )
    assert found.document["set"]["uid"] in copy["data"]["piece"]


def test_who_may_start_one_and_what_has_to_be_typed(
    lockstep: Lockstep, namespace: str, make_set: MakeSet
) -> None:
    make_set(roles=small_roles(V1))
    found = capture(lockstep, namespace, "model")
    for client in (lockstep.api(lockstep.people.viewer), lockstep.api(lockstep.people.approver)):
        assert start(lockstep, found, client=client).status_code == 403
    old = lockstep.operator
    session = old.session
    session["signed_in_at"] = "2020-01-01T00:00:00+00:00"
    session.save()
    assert start(lockstep, found, client=old).json()["code"] == "sign-in-too-old"
    assert start(lockstep, found, confirm="modle").json()["code"] == "confirmation-wrong"
    assert not Operation.objects.filter(kind="restore").exists()
