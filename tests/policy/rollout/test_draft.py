from __future__ import annotations

import copy
from typing import Any

import pytest

from policy.rollout.draft import DraftRefused, apply_draft, parse_draft, refused_changes, rolls_out
from tests.policy.rollout.roles import container, pair, role, template

Json = dict[str, Any]


def apply(roles: list[Json], **changes: Json) -> list[Json]:
    return apply_draft(roles, parse_draft({"roles": changes}))


def worker(roles: list[Json], index: int = 0, which: str = "workerTemplate") -> Json:
    found: Json = roles[index]["spec"]["leaderWorkerTemplate"][which]["spec"]["containers"][0]
    return found


def refusals(roles: list[Json], document: object) -> list[tuple[str, str]]:
    with pytest.raises(DraftRefused) as caught:
        apply_draft(roles, parse_draft(document))
    for refusal in caught.value.refusals:
        assert refusal.sentence
        assert refusal.next_action
    return [(refusal.path, refusal.code) for refusal in caught.value.refusals]


def test_every_kind_of_field_at_once() -> None:
    before = pair()
    untouched = copy.deepcopy(before)
    after = apply(
        before,
        prefill={
            "image": "registry.example/engine@sha256:11",
            "args": ["serve", "--port", "9000"],
            "env": {"LOG": "debug", "EXTRA": "1"},
            "resources": {"limits": {"nvidia.com/gpu": "4", "memory": "1Gi"}, "requests": {"cpu": None}},
            "startupProbe": {"httpGet": {"path": "/health", "port": 8000}, "failureThreshold": 60},
            "replicas": 6,
            "maxSurge": 2,
        },
    )
    assert before == untouched
    assert [each["name"] for each in after] == ["prefill", "decode"]
    assert after[1] == before[1]
    assert after[0]["spec"]["replicas"] == 6
    assert after[0]["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"] == {
        "partition": 0,
        "maxSurge": 2,
        "maxUnavailable": 0,
    }
    engine = worker(after)
    assert engine["image"] == "registry.example/engine@sha256:11"
    assert engine["args"] == ["serve", "--port", "9000"]
    assert [entry["name"] for entry in engine["env"]] == ["LOG", "TOKEN", "EXTRA"]
    assert engine["env"][0] == {"name": "LOG", "value": "debug"}
    assert engine["env"][1] == worker(before)["env"][1]
    assert engine["resources"] == {"limits": {"nvidia.com/gpu": "4", "memory": "1Gi"}, "requests": {}}
    assert engine["startupProbe"]["failureThreshold"] == 60
    assert refused_changes(before, after) == []
    assert rolls_out(before, after)


def test_leader_and_worker_template_both_get_the_value() -> None:
    after = apply(pair(), decode={"image": "x:2"})
    assert worker(after, 1)["image"] == worker(after, 1, "leaderTemplate")["image"] == "x:2"


def test_leader_and_worker_can_get_different_values() -> None:
    after = apply(pair(), decode={"leader": {"args": ["lead"]}, "worker": {"args": ["follow"]}})
    assert worker(after, 1, "leaderTemplate")["args"] == ["lead"]
    assert worker(after, 1)["args"] == ["follow"]


def test_one_value_never_overwrites_two_different_ones() -> None:
    roles = [role("decode", leader=template(container(args=["lead"])), worker=template()), role("prefill")]
    found = refusals(roles, {"roles": {"decode": {"args": ["x"], "image": "x:2"}}})
    assert found == [("roles[decode].args", "leader-and-worker-differ")]


def test_values_are_removed_by_null() -> None:
    roles = pair()
    worker(roles)["livenessProbe"] = {"tcpSocket": {"port": 1}}
    after = apply(roles, prefill={"env": {"LOG": None, "NEVER": None}, "livenessProbe": None, "args": []})
    assert [entry["name"] for entry in worker(after)["env"]] == ["TOKEN"]
    assert "livenessProbe" not in worker(after)
    assert "args" not in worker(after)


def test_the_container_is_named_where_there_are_several() -> None:
    roles = [role("decode", worker=template(container(), container("proxy"))), role("prefill")]
    after = apply(roles, decode={"container": "proxy", "image": "x:2"})
    containers = after[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"]
    assert [each["image"] for each in containers] == ["registry.example/engine:1.0", "x:2"]
    assert refusals(roles, {"roles": {"decode": {"image": "x:2"}}}) == [
        ("roles[decode].container", "container-needed")
    ]
    assert refusals(roles, {"roles": {"decode": {"image": "x:2", "container": "web"}}}) == [
        ("roles[decode].container", "container-unknown")
    ]


def test_a_pace_without_a_block_keeps_what_was_in_force() -> None:
    after = apply(pair(), decode={"maxSurge": 2})
    assert after[1]["spec"]["rolloutStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdateConfiguration": {"maxSurge": 2, "maxUnavailable": 0},
    }
    assert not rolls_out(pair(), after)


@pytest.mark.parametrize(
    ("change", "path", "code"),
    [
        ({"serviceAccountName": "admin"}, ".serviceAccountName", "not-in-a-draft"),
        ({"leader": {"volumes": []}}, ".leader.volumes", "not-in-a-draft"),
        ({"command": ["sh"]}, ".command", "not-in-a-draft"),
        ({"worker": {"replicas": 2}}, ".worker.replicas", "not-in-a-draft"),
        ({"image": ""}, ".image", "draft-malformed"),
        ({"image": None}, ".image", "draft-malformed"),
        ({"args": ["a", 1]}, ".args", "draft-malformed"),
        ({"args": "a"}, ".args", "draft-malformed"),
        ({"env": {"A": 1}}, ".env[A]", "draft-malformed"),
        ({"env": {"A B": "1"}}, ".env[A B]", "draft-malformed"),
        ({"env": ["A"]}, ".env", "draft-malformed"),
        ({"env": {"A": {"secretKeyRef": {}}}}, ".env[A]", "value-from-elsewhere"),
        ({"env": {"TOKEN": "1"}}, ".env[TOKEN]", "value-from-elsewhere"),
        ({"env": {"TOKEN": None}}, ".env[TOKEN]", "value-from-elsewhere"),
        ({"resources": {"claims": []}}, ".resources.claims", "draft-malformed"),
        ({"resources": {"limits": {"cpu": 1.5}}}, ".resources.limits.cpu", "draft-malformed"),
        ({"readinessProbe": "on"}, ".readinessProbe", "draft-malformed"),
        ({"replicas": 0}, ".replicas", "replicas-bad"),
        ({"replicas": True}, ".replicas", "replicas-bad"),
        ({"replicas": 1_000_001}, ".replicas", "replicas-bad"),
        ({"maxSurge": -1}, ".maxSurge", "pace-bad"),
        ({"maxSurge": "101%"}, ".maxSurge", "pace-bad"),
        ({"maxUnavailable": "1"}, ".maxUnavailable", "pace-bad"),
        ({"maxSurge": 0}, ".maxSurge", "pace-zero"),
        ({"leader": {"image": "x"}}, ".leader", "template-unknown"),
        ({}, "", "draft-empty"),
        ([], "", "draft-malformed"),
    ],
)
def test_what_a_draft_may_not_say(change: object, path: str, code: str) -> None:
    assert (f"roles[prefill]{path}", code) in refusals(pair(), {"roles": {"prefill": change}})


@pytest.mark.parametrize("document", [None, [], {}, {"roles": {}}, {"roles": []}])
def test_a_draft_names_a_role(document: object) -> None:
    assert refusals(pair(), document) == [("roles", "draft-empty")]


def test_other_parts_of_the_set_are_no_draft() -> None:
    document = {"roles": {"prefill": {"replicas": 2}}, "slices": 3}
    assert refusals(pair(), document) == [("slices", "not-in-a-draft")]


def test_all_faults_are_named_at_once() -> None:
    found = refusals(pair(), {"roles": {"prefill": {"image": 1, "replicas": 0}, "decode": {"args": 1}}})
    assert [path for path, _ in found] == [
        "roles[prefill].image",
        "roles[prefill].replicas",
        "roles[decode].args",
    ]


def test_an_unknown_role_is_named_with_those_that_exist() -> None:
    with pytest.raises(DraftRefused, match="no role encode") as caught:
        apply(pair(), encode={"replicas": 1})
    assert caught.value.refusals[0].next_action == "use one of prefill, decode"


def test_groups_of_a_scaled_role_belong_to_its_scaler() -> None:
    roles = [role("prefill", scaling={"mode": "External"}), role("decode")]
    assert refusals(roles, {"roles": {"prefill": {"replicas": 3}}}) == [
        ("roles[prefill].replicas", "replicas-owned-by-scaler")
    ]
