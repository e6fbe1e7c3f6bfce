from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from policy.rollout.hazards import (
    FitFacts,
    Hazard,
    PlanFacts,
    PodFacts,
    RoleFacts,
    ScalerFacts,
    find_hazards,
    read_pod_facts,
)
from policy.rollout.hazards_path import PathExam
from policy.rollout.holds import FIRST_COMPLETE_ROW, HALF, minimum_ready, view_plan
from policy.rollout.planner import executor_rows, plan
from policy.rollout.scope import ChangeScope
from tests.policy.rollout.roles import container, role, template

SURGE_ONE = {"maxSurge": 1, "maxUnavailable": 0}
NO_SURGE = {"maxSurge": 0, "maxUnavailable": 1}
SCALER = ScalerFacts(
    "HorizontalPodAutoscaler busy", "LeaderWorkerSet llama-7c9e41b2-decode", "decode", "disabled"
)
DIGEST = "registry.example/engine@sha256:" + "a" * 64


def a_role(name: str, live: int | None, target: int | None = -1, **fields: Any) -> RoleFacts:
    """A ready role; without `target` it keeps its groups."""
    given: dict[str, Any] = {
        "ready_groups": live or 0,
        "target_groups": live if target == -1 else target,
        "pace_written": SURGE_ONE,
        "pods": PodFacts(images=(DIGEST,), startup_seconds=600, grace_seconds=60),
    }
    return RoleFacts(name=name, live_groups=live, **(given | fields))


def scope(**fields: Any) -> ChangeScope:
    nothing = ChangeScope(("prefill",), (), (), (), (), False, ("prefill", "decode"), (), "All roles roll.")
    return replace(nothing, **fields)


def facts_of(*roles: RoleFacts, **fields: Any) -> PlanFacts:
    """Facts of a plan without any hazard, with rows computed for the given roles."""
    those = roles or (a_role("prefill", 4), a_role("decode", 2))
    given: dict[str, Any] = {
        "set_name": "llama",
        "scope": scope(),
        "view": view_of(those),
        "live_revisions": ("7c9e41b2",),
        "lws_version": "v0.9.0",
        "fit": FitFacts("fits"),
        "path": PathExam(("chat",), "proved", guard="guarded", probed=True),
    }
    return PlanFacts(roles=those, **(given | fields))


def view_of(roles: tuple[RoleFacts, ...]) -> Any:
    initial = [each.live_groups or 0 for each in roles]
    target = [each.target_groups or 0 for each in roles]
    unavailable = [each.pace.unavailable for each in roles]
    rows = plan(
        initial=initial,
        target=target,
        surge=[each.pace.surge for each in roles],
        unavailable=unavailable,
    )
    return view_plan(
        executor_rows(rows, target=target),
        rules=(FIRST_COMPLETE_ROW, HALF),
        target=target,
        minimum=minimum_ready(initial=initial, target=target, unavailable=unavailable),
        old_devices=[1] * len(roles),
        new_devices=[1] * len(roles),
    )


def found(facts: PlanFacts) -> dict[str, Hazard]:
    hazards = find_hazards(facts)
    by_id = {hazard.id: hazard for hazard in hazards}
    assert len(by_id) == len(hazards), "an id appears twice"
    for hazard in hazards:
        assert hazard.sentence.endswith((".", ")"))
        assert hazard.next_action.endswith(".")
    json.dumps([asdict(hazard) for hazard in hazards])
    return by_id


def ids(facts: PlanFacts) -> set[str]:
    return set(found(facts))


def test_a_clean_plan_has_none() -> None:
    assert ids(facts_of()) == set()


def test_the_blocking_ones_come_first() -> None:
    facts = facts_of(rollout_in_flight=True, path=None, writers=("gitops",), lws_version=None)
    severities = [hazard.severity for hazard in find_hazards(facts)]
    assert severities == sorted(severities, key=["block", "warn", "info"].index)


NO_ROLL = scope(rolls=(), template_changed=())

CASES: list[tuple[str, str, PlanFacts]] = [
    ("no-live-revision", "block", facts_of(live_revisions=())),
    ("several-live-revisions", "block", facts_of(live_revisions=("a", "b"))),
    ("rollout-in-flight", "block", facts_of(rollout_in_flight=True)),
    ("role-at-zero", "block", facts_of(a_role("prefill", 0, 1), a_role("decode", 4))),
    ("target-at-zero", "block", facts_of(a_role("prefill", 2, 0), a_role("decode", 4))),
    (
        "old-groups-unready",
        "block",
        facts_of(a_role("prefill", 4, ready_groups=3), a_role("decode", 2)),
    ),
    (
        "old-groups-unready",
        "warn",
        facts_of(
            a_role("prefill", 4, ready_groups=3, pace_written={"maxSurge": 1, "maxUnavailable": 1}),
            a_role("decode", 2),
        ),
    ),
    (
        "role-added",
        "warn",
        facts_of(a_role("prefill", 4), a_role("decode", 2), a_role("encode", None, 1)),
    ),
    (
        "role-removed",
        "warn",
        facts_of(a_role("prefill", 4), a_role("decode", 2), a_role("encode", 1, None)),
    ),
    ("roles-reordered", "warn", facts_of(scope=scope(reordered=True))),
    (
        "pace-defaults",
        "info",
        facts_of(a_role("prefill", 4, pace_written={"maxSurge": 2}), a_role("decode", 2)),
    ),
    (
        "surge-zero-percent",
        "block",
        facts_of(
            a_role("prefill", 4, pace_written={"maxSurge": 0, "maxUnavailable": "25%"}), a_role("decode", 4)
        ),
    ),
    (
        "surge-zero-percent",
        "block",
        facts_of(
            a_role("prefill", 3, pace_written={"maxSurge": "0%", "maxUnavailable": "25%"}),
            a_role("decode", 3),
        ),
    ),
    (
        "surge-zero-unequal",
        "warn",
        facts_of(a_role("prefill", 4, pace_written=NO_SURGE), a_role("decode", 2, pace_written=NO_SURGE)),
    ),
    (
        "spare-group-needed",
        "warn",
        facts_of(a_role("prefill", 4, pace_written=NO_SURGE), a_role("decode", 1, pace_written=NO_SURGE)),
    ),
    (
        "row-under-minimum",
        "block",
        facts_of(a_role("prefill", 1, pace_written=NO_SURGE), a_role("decode", 1, pace_written=NO_SURGE)),
    ),
    (
        "hold-without-row",
        "block",
        facts_of(a_role("prefill", 2, pace_written=NO_SURGE), a_role("decode", 1, pace_written=NO_SURGE)),
    ),
    (
        "replicas-with-template",
        "info",
        facts_of(a_role("prefill", 4, 6), a_role("decode", 2), scope=scope(replicas_changed=("prefill",))),
    ),
    ("late-settings", "info", facts_of(scope=scope(late=("roles[prefill].spec.startupPolicy",)))),
    ("nothing-rolls-out", "info", facts_of(scope=NO_ROLL, view=None)),
    ("name-not-dns-1035", "block", facts_of(set_name="7b-chat")),
    ("name-not-dns-1035", "block", facts_of(set_name="llama.chat")),
    ("name-too-long", "block", facts_of(set_name="l" * 36)),
    ("lws-version-unknown", "warn", facts_of(lws_version=None)),
    ("lws-version-unknown", "warn", facts_of(lws_version="v0.11.0")),
    ("lws-version-unknown", "warn", facts_of(lws_version="main-060ab4d")),
    ("slices-raised", "block", facts_of(slices_before=1, slices_after=2)),
    ("slices-lowered", "warn", facts_of(slices_before=2, slices_after=1)),
    ("scaler-on-role", "block", facts_of(a_role("prefill", 4, external=True), a_role("decode", 2))),
    ("scaler-on-role", "block", facts_of(scalers=(replace(SCALER, problem="somebody manages it"),))),
    ("scaler-is-paused", "warn", facts_of(scalers=(SCALER,))),
    ("scaler-aims-at-revision", "warn", facts_of(scalers=(replace(SCALER, of_revision=True),))),
    ("another-writer", "block", facts_of(writers=("argocd-controller",))),
    ("does-not-fit", "block", facts_of(fit=FitFacts("does-not-fit", "prefill group 5", "No node has 8."))),
    ("fit-unknown", "warn", facts_of(fit=None)),
    ("fit-unknown", "warn", facts_of(fit=FitFacts("unknown", "", "A pod uses resource claims."))),
    ("prv-services-used", "warn", facts_of(prv_users=("Deployment web",))),
    ("path-not-examined", "warn", facts_of(path=None)),
    (
        "startup-probe-short",
        "warn",
        facts_of(a_role("prefill", 4, load_seen_seconds=601), a_role("decode", 2, load_seen_seconds=600)),
    ),
    (
        "grace-period-short",
        "warn",
        facts_of(a_role("prefill", 4), a_role("decode", 2, drain_seconds=1, longest_stream_seconds=60)),
    ),
    (
        "mutable-tag",
        "warn",
        facts_of(a_role("prefill", 4, pods=PodFacts(("x/y:latest",))), a_role("decode", 2)),
    ),
    (
        "tag-without-digest",
        "info",
        facts_of(a_role("prefill", 4, pods=PodFacts(("x/y:v0.9.1",))), a_role("decode", 2)),
    ),
]


@pytest.mark.parametrize(("id_", "severity", "facts"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_each_hazard(id_: str, severity: str, facts: PlanFacts) -> None:
    hazards = found(facts)
    assert id_ in hazards
    assert hazards[id_].severity == severity


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (facts_of(a_role("prefill", 4, 6), a_role("decode", 2)), set()),
        (facts_of(set_name="l" * 35), set()),
        (facts_of(set_name="l" * 33, lws_version="v0.10.0"), set()),
        (facts_of(set_name="l" * 34, lws_version="v0.10.0"), {"name-too-long"}),
        (facts_of(a_role("prefill", 10, size=2), a_role("decode", 2), set_name="l" * 33), set()),
        (facts_of(a_role("prefill", 11, size=2), a_role("decode", 2), set_name="l" * 33), {"name-too-long"}),
        (facts_of(a_role("prefill", 4, pace_written=None), a_role("decode", 2)), set()),
        (
            facts_of(
                a_role("prefill", 4, pace_written={"maxSurge": 1, "maxUnavailable": "25%"}),
                a_role("decode", 2),
            ),
            set(),
        ),
        (
            facts_of(
                a_role("prefill", 4, pace_written={"maxSurge": 0, "maxUnavailable": 2}),
                a_role("decode", 4, pace_written={"maxSurge": 0, "maxUnavailable": 2}),
            ),
            set(),
        ),
        (facts_of(a_role("prefill", 4, load_seen_seconds=600), a_role("decode", 2)), set()),
        (facts_of(a_role("prefill", 4), a_role("decode", 2, longest_stream_seconds=60)), set()),
        (facts_of(slices_before=2, slices_after=2, lws_version="v0.10.1"), set()),
    ],
)
def test_just_inside(facts: PlanFacts, expected: set[str]) -> None:
    assert ids(facts) == expected


def test_replacing_every_role_is_one_hazard() -> None:
    facts = facts_of(
        a_role("p2", None, 4),
        a_role("d2", None, 2),
        a_role("prefill", 4, None),
        a_role("decode", 2, None),
        view=None,
        reconcile_errors=("webhook denied",),
    )
    assert ids(facts) == {"all-roles-replaced"}


def test_removing_a_role_while_the_controller_fails() -> None:
    roles = (a_role("prefill", 4), a_role("decode", 2), a_role("encode", 1, None))
    assert "role-removed-with-errors" not in ids(facts_of(*roles))
    hazards = found(facts_of(*roles, reconcile_errors=("webhook denied",)))
    assert hazards["role-removed-with-errors"].facts["errors"] == ["webhook denied"]


def test_a_removed_role_at_zero_blocks_too() -> None:
    facts = facts_of(a_role("prefill", 4), a_role("decode", 2), a_role("encode", 0, None))
    assert found(facts)["role-at-zero"].facts == {"roles": ["encode"]}


def test_the_first_short_row_is_named_with_all_of_them() -> None:
    facts = facts_of(a_role("prefill", 4, pace_written=NO_SURGE), a_role("decode", 1, pace_written=NO_SURGE))
    hazard = found(facts)["row-under-minimum"]
    assert "At row 6 prefill has 2 ready groups, and the plan's minimum is 3" in hazard.sentence
    assert "blue/green" in hazard.next_action
    assert "cells" in hazard.next_action
    assert hazard.facts == {"rows": [[6, "prefill", 2]]}


def test_what_the_server_fills_in_is_said() -> None:
    hazard = found(facts_of(a_role("prefill", 4, pace_written={"maxSurge": 2}), a_role("decode", 2)))[
        "pace-defaults"
    ]
    assert "prefill: maxUnavailable 1" in hazard.sentence
    assert hazard.facts == {"filled_in": {"prefill": {"maxUnavailable": 1}}}


def test_without_a_rollout_only_the_state_of_the_set_counts() -> None:
    facts = facts_of(
        a_role("prefill", 0, 3, pods=PodFacts(("x:latest",), 1, 1)),
        a_role("decode", 2, drain_seconds=90),
        scope=replace(NO_ROLL, late=("roles[decode].metadata",)),
        view=None,
        fit=None,
        path=None,
        lws_version=None,
        prv_users=("a",),
        slices_after=2,
        scalers=(replace(SCALER, of_revision=True),),
    )
    hazards = found(facts)
    assert set(hazards) == {"nothing-rolls-out", "late-settings", "scaler-is-paused"}
    assert "reaches no pod now" in hazards["late-settings"].sentence


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("engine", "mutable-tag"),
        ("host:5000/engine", "mutable-tag"),
        ("engine:latest", "mutable-tag"),
        ("engine:nightly-20260101", "mutable-tag"),
        ("engine:release", "mutable-tag"),
        ("engine:v0.9.1", "tag-without-digest"),
        ("host:5000/engine:0.30", "tag-without-digest"),
        ("engine:latest@sha256:" + "0" * 64, ""),
    ],
)
def test_images(image: str, expected: str) -> None:
    facts = facts_of(a_role("prefill", 4, pods=PodFacts((image,))), a_role("decode", 2))
    assert ids(facts) == ({expected} if expected else set())


def test_pod_facts_of_a_role() -> None:
    leader = template(
        container(
            image="a:1",
            startupProbe={"failureThreshold": 60, "periodSeconds": 5, "initialDelaySeconds": 20},
            lifecycle={"preStop": {"exec": {"command": ["/bin/sh", "-c", "drain; sleep 45"]}}},
        ),
        container("proxy", image="b:1", lifecycle={"preStop": {"sleep": {"seconds": 5}}}),
        terminationGracePeriodSeconds=90,
    )
    worker = template(container(image="a:1", livenessProbe={"failureThreshold": 100}))
    worker["spec"]["initContainers"] = [container("init", image="c:1")]
    assert read_pod_facts(role("decode", leader=leader, worker=worker)) == PodFacts(
        images=("a:1", "b:1", "c:1"), startup_seconds=320, grace_seconds=30, pre_stop_seconds=45
    )


def test_pod_facts_of_a_bare_template() -> None:
    assert read_pod_facts(role("prefill")) == PodFacts(
        images=("registry.example/engine:1.0",), startup_seconds=None, grace_seconds=30, pre_stop_seconds=0
    )
