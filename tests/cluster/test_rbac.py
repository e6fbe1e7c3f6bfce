"""No right of the shipped account is superfluous: each (resource, verb) is taken away in turn, and something that
Lockstep has to do is then refused."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from controlplane.audit.actor import command
from controlplane.fleet.connections import connect_cluster
from controlplane.fleet.observer import Observer
from controlplane.holds import proof
from controlplane.holds.guards import restore_guards
from controlplane.holds.live import read_scaled
from controlplane.holds.scalers.seen import Scaler
from controlplane.holds.scalers.writing import Holder, pause_scaler
from controlplane.kube.client import Kube
from controlplane.kube.errors import Denied, Invalid
from controlplane.kube.resources import SERVICES
from controlplane.operations.engine import advance
from controlplane.operations.installation import ensure_lease, take_over_cluster
from controlplane.operations.models import Operation
from controlplane.paths.objects import read_objects
from controlplane.upgrades.steps import forward
from deploy.demo.router.manifests import inference_pool
from deploy.rig import Rig, until
from policy.rollout.scalers import Target, plan_pause
from tests.cluster.driving import MANIFESTS, Lockstep, install_target
from tests.cluster.midway import V2, Json, Midway, at_first_hold, small_roles, started
from tests.cluster.putting_back import puts_back
from tests.cluster.scalers import hpa
from tests.cluster.test_faults import delete_one_new, quick_cure, step_comes
from workers.steps import STEPS
from workers.watching import ClusterWatch

pytestmark = [pytest.mark.rig, pytest.mark.django_db(transaction=True)]
MakeSet = Callable[..., str]
POLICIES = "/apis/admissionregistration.k8s.io/v1"
Pair = tuple[str, str]  # resource, verb


def shipped() -> list[Json]:
    """The documents of rbac.yaml."""
    return list(yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text()))


def pairs_of(document: Json) -> set[Pair]:
    """(resource, verb) of a Role or ClusterRole."""
    return {
        (resource, verb)
        for rule in document.get("rules", [])
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def granted() -> list[tuple[str, str, str]]:
    """(kind of role, resource, verb) of everything that is shipped."""
    return sorted((doc["kind"], *pair) for doc in shipped() for pair in pairs_of(doc))


@contextmanager
def without(rig: Rig, kind: str, resource: str, verb: str) -> Iterator[None]:
    """The account as shipped, less one right; waits until the API server knows."""
    document = next(doc for doc in shipped() if doc["kind"] == kind)
    group = next(rule["apiGroups"][0] for rule in document["rules"] if resource in rule["resources"])
    less = copy.deepcopy(document)
    rules = []
    for rule in less["rules"]:
        if resource in rule["resources"]:
            rest = [one for one in rule["resources"] if one != resource]
            verbs = [one for one in rule["verbs"] if one != verb]
            rules += [{**rule, "resources": rest}] if rest else []
            rules += [{**rule, "resources": [resource], "verbs": verbs}] if verbs else []
        else:
            rules.append(rule)
    less["rules"] = rules
    rig.apply(less)
    try:
        until("the right to be gone", lambda: not _may(rig, group, resource, verb))
        yield
    finally:
        rig.apply(document)
        until("the right to be back", lambda: _may(rig, group, resource, verb))


def _may(rig: Rig, group: str, resource: str, verb: str) -> bool:
    asked = {"namespace": "lockstep", "group": group, "resource": resource, "verb": verb}
    answer = rig.client("lockstep").request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        },
    )
    return bool(answer["status"]["allowed"])


# --- what Lockstep has to do: each returns what the API server or Lockstep says against it

Deed = Callable[[Lockstep, str, MakeSet, Callable[[], Any]], str]


def watches(resource: str) -> Deed:
    """The watch process keeps a picture of the resource."""

    def deed(lockstep: Lockstep, namespace: str, make_set: MakeSet, less: Callable[[], Any]) -> str:
        bells: Any = SimpleNamespace()
        watch = ClusterWatch(cluster_id=lockstep.cluster.pk, name="rig", bells=bells, stop=threading.Event())
        with less(), connect_cluster(lockstep.cluster) as kube:
            required, others = watch._reflect(kube, _observer(lockstep))
            reflector = next(one for one in required + others if one.resource.plural == resource)
            reflector.start()
            try:
                return until("a refusal", lambda: reflector.problem)
            finally:
                reflector.stop()

    return deed


def _observer(lockstep: Lockstep) -> Observer:
    from datetime import timedelta

    return Observer(
        cluster_id=lockstep.cluster.pk, fence=1, stuck_after=timedelta(hours=1), wake=lambda uids: None
    )


def claims(lockstep: Lockstep, namespace: str, make_set: MakeSet, less: Callable[[], Any]) -> str:
    """The installation claims a cluster that is new to everybody."""
    lease = "/apis/coordination.k8s.io/v1/namespaces/lockstep/leases/lockstep-installation"
    lockstep.rig.client("break-glass").delete(lease)
    lockstep.cluster.lease_transitions = 0
    with less(), connect_cluster(lockstep.cluster) as kube:
        said = ensure_lease(kube=kube, cluster=lockstep.cluster, actor=command("test"))
    assert said == "unprepared"
    lockstep.cluster.refresh_from_db()
    return lockstep.cluster.writes_reason


def takes_over(lockstep: Lockstep, namespace: str, make_set: MakeSet, less: Callable[[], Any]) -> str:
    """A person takes the cluster over from another installation."""

    def deed(kube: Kube) -> None:
        take_over_cluster(kube=kube, cluster=lockstep.cluster, reason="test", actor=command("test"))

    return _refusal(lockstep, less, deed)


def remakes(kind: str, name: str) -> Deed:
    """A deleted guard is seen and made again."""

    def deed(lockstep: Lockstep, namespace: str, make_set: MakeSet, less: Callable[[], Any]) -> str:
        lockstep.rig.client("break-glass").delete(f"{POLICIES}/{kind}/{name}")
        try:
            return _refusal(lockstep, less, restore_guards)
        finally:
            install_target(lockstep.rig)

    return deed


def _refusal(lockstep: Lockstep, less: Callable[[], Any], deed: Callable[[Kube], object]) -> str:
    with less(), connect_cluster(lockstep.cluster) as kube, pytest.raises((Denied, Invalid)) as refused:
        deed(kube)
    return refused.value.message


def hazard(wanted: str) -> Deed:
    """A plan is judged against everything around the set."""

    def deed(lockstep: Lockstep, namespace: str, make_set: MakeSet, less: Callable[[], Any]) -> str:
        make_set(roles=small_roles())
        with less():
            plan = lockstep.draft(
                lockstep.observe(namespace, "model"),
                {"roles": {role: {"image": V2} for role in ("prefill", "decode")}},
            )
        return " ".join(one["sentence"] for one in plan["hazards"] if one["id"] == wanted)

    return deed


def step(name: str) -> Deed:
    """A step of an upgrade; what its operation then waits for, or is held by."""

    def deed(lockstep: Lockstep, namespace: str, make_set: MakeSet, less: Callable[[], Any]) -> str:
        midway = started(lockstep, namespace, make_set)
        if name == "cure_partial_init":
            quick_cure(midway)
            step_comes(midway, "read_revision")
            delete_one_new(midway)
        step_comes(midway, name)
        with less(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(proof, "PROOF_PATIENCE", 0.0)  # the first dry runs decide
            return _tried(midway)

    return deed


def pauses(lockstep: Lockstep, namespace: str, make_set: MakeSet, less: Callable[[], Any]) -> str:
    """An upgrade pauses an HPA of its set."""
    midway = started(lockstep, namespace, make_set)
    midway.client().create(hpa(namespace, child=f"model-{midway.old}-decode", minReplicas=1))
    step_comes(midway, "pause_scalers")
    with less():
        said = advance(operation_id=midway.operation.pk, steps=STEPS, connect=connect_cluster, owner="test")
    assert said == "hold"
    return str(Operation.objects.get(pk=midway.operation.pk).finding["sentence"])


def pauses_one(kind: str) -> Deed:
    """A scaler of another project is paused; this cluster need not know the kind."""

    def deed(lockstep: Lockstep, namespace: str, make_set: MakeSet, less: Callable[[], Any]) -> str:
        metadata = {"name": "busy", "namespace": namespace, "uid": "1", "resourceVersion": "1"}
        body = {"kind": kind, "metadata": metadata, "spec": {}}
        target = Target("DisaggregatedSetRoleScaler", "model-decode", "decode", 2)
        scaler = Scaler(body, target, plan_pause(body, target))
        holder = Holder("U-0", "here", 1, {"namespace": namespace, "name": "model", "uid": "1"})
        return _refusal(lockstep, less, lambda kube: pause_scaler(kube, scaler, holder, inherited=None))

    return deed


def reads_role_scalers(lockstep: Lockstep, namespace: str, make_set: MakeSet, less: Callable[[], Any]) -> str:
    """The number of a role that is sized from outside."""
    metadata = {"name": "model", "namespace": namespace, "uid": "1"}
    live = {
        "metadata": metadata,
        "spec": {"roles": [{"name": "decode", "scaling": {"mode": "External"}, "spec": {}}]},
    }
    return _refusal(lockstep, less, lambda kube: read_scaled(kube, live))


def _tried(midway: Midway) -> str:
    said = advance(operation_id=midway.operation.pk, steps=STEPS, connect=connect_cluster, owner="test")
    now = Operation.objects.get(pk=midway.operation.pk)
    assert said in {"failure", "hold"}, (said, now.waits_for)
    return str(now.waits_for.get("what") or now.finding["facts"])


def takes_back(lockstep: Lockstep, namespace: str, make_set: MakeSet, less: Callable[[], Any]) -> str:
    """A worker that made a Service too late, after an abort, takes it back."""
    midway = at_first_hold(lockstep, namespace, make_set)
    midway.goes_back()
    context: Any = SimpleNamespace(operation=midway.operation)

    def deed(kube: Kube) -> None:
        context.kube = kube
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "late", "namespace": namespace}}
        made = kube.create(
            SERVICES, {**body, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}}, namespace
        )
        forward._take_back(context, made)

    return _refusal(lockstep, less, deed)


def reads_paths(lockstep: Lockstep, namespace: str, make_set: MakeSet, less: Callable[[], Any]) -> str:
    """The path of a pool is read; what may not be listed is named, so that nobody takes it for absent."""
    pool = inference_pool("chat", namespace, {"app": "chat"}, router="chat-epp")
    lockstep.rig.apply(pool)
    with less(), connect_cluster(lockstep.cluster) as kube:
        return f"may not list {' '.join(read_objects(kube, namespace).unread)}"


POLICY, BINDING = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
NEEDS: dict[tuple[str, str, str], tuple[Deed, str]] = {
    **{
        ("ClusterRole", resource, verb): (watches(resource), f"cannot {verb} resource")
        for resource in ("disaggregatedsets", "leaderworkersets", "pods", "nodes", POLICY, BINDING)
        for verb in ("list", "watch")
    },
    ("ClusterRole", "disaggregatedsets", "get"): (step("open_hold"), "cannot get resource"),
    ("ClusterRole", "disaggregatedsets", "patch"): (step("open_hold"), "cannot patch resource"),
    ("ClusterRole", "disaggregatedsets", "update"): (step("write_roles"), "cannot update resource"),
    ("ClusterRole", "leaderworkersets", "patch"): (step("prove_hold"), "cannot patch resource"),
    ("ClusterRole", "leaderworkersets", "delete"): (step("cure_partial_init"), "cannot delete resource"),
    ("ClusterRole", "services", "create"): (step("publish_services"), "cannot create resource"),
    ("ClusterRole", "services", "delete"): (takes_back, "cannot delete resource"),
    ("ClusterRole", "resourcequotas", "list"): (hazard("fit-unknown"), "may not list resourcequotas"),
    **{
        ("ClusterRole", resource, "list"): (hazard("scalers-unread"), f"may not list {resource}")
        for resource in ("horizontalpodautoscalers", "scaledobjects", "podautoscalers")
    },
    ("ClusterRole", "horizontalpodautoscalers", "patch"): (pauses, "cannot patch resource"),
    ("ClusterRole", "scaledobjects", "patch"): (pauses_one("ScaledObject"), "cannot patch resource"),
    ("ClusterRole", "podautoscalers", "patch"): (pauses_one("PodAutoscaler"), "cannot patch resource"),
    ("ClusterRole", "disaggregatedsetrolescalers", "list"): (reads_role_scalers, "cannot list resource"),
    **{
        ("ClusterRole", resource, "list"): (reads_paths, f"may not list {resource}")
        for resource in ("inferencepools", "httproutes", "services", "deployments", "inferenceobjectives")
    },
    ("ClusterRole", POLICY, "get"): (step("reach_row"), "cannot get resource"),
    ("ClusterRole", BINDING, "get"): (step("reach_row"), "cannot get resource"),
    ("ClusterRole", POLICY, "create"): (remakes(POLICY, "lockstep-hold-guard"), "cannot create resource"),
    ("ClusterRole", BINDING, "create"): (remakes(BINDING, "lockstep-hold-guard"), "cannot create resource"),
    ("ClusterRole", "configmaps", "get"): (
        remakes(POLICY, "lockstep-rollout-hold"),
        'must have "get" permission',
    ),
    ("Role", "configmaps", "list"): (watches("configmaps"), "cannot list resource"),
    ("Role", "configmaps", "watch"): (watches("configmaps"), "cannot watch resource"),
    ("ClusterRole", "configmaps", "create"): (step("open_hold"), "cannot create resource"),
    ("ClusterRole", "configmaps", "update"): (step("write_roles"), "cannot update resource"),
    **{
        ("ClusterRole", resource, verb): (puts_back(resource, verb), f"cannot {verb} resource")
        for resource, verb in (
            ("deployments", "patch"),
            ("httproutes", "update"),
            ("inferenceobjectives", "create"),
            ("inferenceobjectives", "update"),
        )
    },
    ("Role", "leases", "get"): (claims, "cannot get resource"),
    ("Role", "leases", "create"): (claims, "cannot create resource"),
    ("Role", "leases", "update"): (takes_over, "cannot update resource"),
}


def test_every_right_that_is_shipped_has_a_deed_that_needs_it() -> None:
    assert set(granted()) == set(NEEDS)
    twice = [
        pair for doc in shipped() for rule in doc.get("rules", []) for pair in pairs_of({"rules": [rule]})
    ]
    assert len(granted()) == len(twice), "nothing is granted by two rules"
    assert not any("*" in part for right in granted() for part in right)


@pytest.mark.parametrize("right", sorted(NEEDS), ids=" ".join)
def test_without_the_right_the_deed_is_refused(
    lockstep: Lockstep, namespace: str, make_set: MakeSet, right: tuple[str, str, str]
) -> None:
    deed, words = NEEDS[right]
    said = deed(lockstep, namespace, make_set, lambda: without(lockstep.rig, *right))
    assert words in said, said
    if "cannot" in words:
        assert f'"{right[1]}"' in said
