from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from policy.rollout.refused import refused_changes
from policy.rollout.scope import change_scope, rolls_out
from tests.policy.rollout.roles import container, pair, role

Json = dict[str, Any]
Edit = Callable[[list[Json]], object]

POD = "roles[prefill].spec.leaderWorkerTemplate.workerTemplate.spec"
ENGINE = f"{POD}.containers[engine]"


def changed(edit: Edit) -> list[Json]:
    roles = copy.deepcopy(pair())
    edit(roles)
    return roles


def pod(roles: list[Json]) -> Json:
    found: Json = roles[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    return found


def engine(roles: list[Json]) -> Json:
    found: Json = pod(roles)["containers"][0]
    return found


REFUSED: list[tuple[Edit, str]] = [
    (lambda r: pod(r).update(serviceAccountName="admin"), f"{POD}.serviceAccountName"),
    (lambda r: pod(r).update(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), f"{POD}.volumes"),
    (lambda r: pod(r).update(securityContext={"runAsUser": 0}), f"{POD}.securityContext"),
    (lambda r: pod(r).update(hostNetwork=True), f"{POD}.hostNetwork"),
    (lambda r: pod(r).update(initContainers=[container("x")]), f"{POD}.initContainers"),
    (lambda r: pod(r).update(terminationGracePeriodSeconds=5), f"{POD}.terminationGracePeriodSeconds"),
    (lambda r: pod(r).update(nodeSelector={"a": "b"}), f"{POD}.nodeSelector"),
    (lambda r: pod(r)["containers"].append(container("x")), f"{POD}.containers"),
    (lambda r: engine(r).update(name="other"), f"{POD}.containers"),
    (lambda r: engine(r).update(securityContext={"privileged": True}), f"{ENGINE}.securityContext"),
    (lambda r: engine(r).update(volumeMounts=[{"name": "v", "mountPath": "/v"}]), f"{ENGINE}.volumeMounts"),
    (lambda r: engine(r).update(envFrom=[{"secretRef": {"name": "s"}}]), f"{ENGINE}.envFrom"),
    (lambda r: engine(r).update(command=["sh"]), f"{ENGINE}.command"),
    (lambda r: engine(r).update(lifecycle={"preStop": {}}), f"{ENGINE}.lifecycle"),
    (lambda r: engine(r)["resources"].update(claims=[{"name": "c"}]), f"{ENGINE}.resources.claims"),
    (
        lambda r: engine(r)["env"].append({"name": "B", "valueFrom": {"secretKeyRef": {"name": "s"}}}),
        f"{ENGINE}.env[B].valueFrom",
    ),
    (lambda r: engine(r)["env"][1].update(valueFrom={"x": 1}), f"{ENGINE}.env[TOKEN].valueFrom"),
    (lambda r: engine(r)["env"].pop(1), f"{ENGINE}.env[TOKEN].valueFrom"),
    (lambda r: engine(r)["env"].append({"name": "LOG", "value": "x"}), f"{ENGINE}.env"),
    (
        lambda r: r[0]["spec"]["leaderWorkerTemplate"].update(size=2),
        "roles[prefill].spec.leaderWorkerTemplate.size",
    ),
    (
        lambda r: r[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"].update(metadata={"labels": {}}),
        "roles[prefill].spec.leaderWorkerTemplate.workerTemplate.metadata",
    ),
    (
        lambda r: r[1]["spec"]["leaderWorkerTemplate"].pop("leaderTemplate"),
        "roles[decode].spec.leaderWorkerTemplate.leaderTemplate",
    ),
    (
        lambda r: r[0]["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"].update(partition=1),
        "roles[prefill].spec.rolloutStrategy.rollingUpdateConfiguration.partition",
    ),
    (lambda r: r[0]["spec"].update(startupPolicy="LeaderReady"), "roles[prefill].spec.startupPolicy"),
    (lambda r: r[0].update(metadata={"labels": {"q": "1"}}), "roles[prefill].metadata"),
    (lambda r: r[0].update(scaling={"mode": "External"}), "roles[prefill].scaling"),
    (lambda r: r.reverse(), "roles"),
]


@pytest.mark.parametrize(("edit", "path"), REFUSED, ids=[path.rsplit(".", 1)[-1] for _, path in REFUSED])
def test_refused_by_path(edit: Edit, path: str) -> None:
    found = refused_changes(pair(), changed(edit))
    assert [refusal.path for refusal in found] == [path]
    assert found[0].code == "change-refused"
    assert found[0].next_action


def test_roles_that_come_and_go() -> None:
    after = [*pair()[1:], role("encode")]
    assert [refusal.path for refusal in refused_changes(pair(), after)] == ["roles[encode]", "roles[prefill]"]


def test_every_refused_change_is_named() -> None:
    def edit(roles: list[Json]) -> None:
        pod(roles).update(hostPID=True, volumes=[])
        engine(roles).update(image="x:2", tty=True)

    assert {refusal.path for refusal in refused_changes(pair(), changed(edit))} == {
        f"{POD}.hostPID",
        f"{POD}.volumes",
        f"{ENGINE}.tty",
    }


ALLOWED: list[Edit] = [
    lambda r: engine(r).update(image="x:2", args=["a"], livenessProbe={"tcpSocket": {"port": 1}}),
    lambda r: engine(r)["env"].append({"name": "NEW", "value": "1"}),
    lambda r: engine(r)["env"].pop(0),
    lambda r: engine(r)["resources"].update(limits={"nvidia.com/gpu": "4"}),
    lambda r: r[0]["spec"].update(replicas=9),
    lambda r: r[0]["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"].update(maxSurge="50%"),
    lambda r: r[1]["spec"].update(
        rolloutStrategy={
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"partition": 0, "maxSurge": 1, "maxUnavailable": 0},
        }
    ),
    lambda r: r,
]


@pytest.mark.parametrize("edit", ALLOWED)
def test_allowed(edit: Edit) -> None:
    assert refused_changes(pair(), changed(edit)) == []


# What rolls together


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda r: engine(r).update(image="x:2"), True),
        (lambda r: r.reverse(), True),
        (lambda r: r.append(role("encode")), True),
        (lambda r: r[0]["spec"].update(replicas=9, startupPolicy="LeaderReady", networkConfig={}), False),
        (lambda r: r[0].update(metadata={"labels": {"q": "1"}}), False),
        (lambda r: r, False),
    ],
)
def test_what_makes_a_new_revision(edit: Edit, expected: bool) -> None:
    assert rolls_out(pair(), changed(edit)) is expected


def test_one_template_rolls_every_role() -> None:
    scope = change_scope(pair(), changed(lambda r: engine(r).update(image="x:2")))
    assert scope.template_changed == ("prefill",)
    assert scope.rolls == ("prefill", "decode")
    assert (
        scope.sentence
        == "All roles (prefill and decode) roll together because the template of prefill changes."
    )


def test_replicas_alone_restart_nothing() -> None:
    scope = change_scope(pair(), changed(lambda r: r[1]["spec"].update(replicas=9)))
    assert (scope.rolls, scope.replicas_changed) == ((), ("decode",))
    assert "No group is restarted" in scope.sentence


def test_scope_names_what_comes_late() -> None:
    def edit(roles: list[Json]) -> None:
        roles[0]["spec"]["startupPolicy"] = "LeaderReady"
        roles[1]["metadata"] = {"labels": {"q": "1"}}

    assert change_scope(pair(), changed(edit)).late == (
        "roles[prefill].spec.startupPolicy",
        "roles[decode].metadata",
    )


def test_scope_of_roles_that_come_go_and_move() -> None:
    after = [role("encode"), *reversed(pair())]
    scope = change_scope([*pair(), role("extra")], after)
    assert (scope.added, scope.removed, scope.reordered) == (("encode",), ("extra",), True)
    assert scope.rolls == ("encode", "decode", "prefill")
