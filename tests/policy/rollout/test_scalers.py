"""How each kind of scaler is paused, and that giving back is exact whatever others did in between."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.rollout.scalers import (
    FIELDS,
    HPA,
    KEDA_PAUSED,
    KEDA_PAUSED_REPLICAS,
    KNATIVE_MAX,
    KNATIVE_MIN,
    POD_AUTOSCALER,
    SCALED_OBJECT,
    GivenBack,
    Target,
    allowed_settings,
    changed_keys,
    difference,
    give_back,
    is_made_by_scaler,
    merged,
    plan_pause,
    rest_of,
    settings_of,
    target_of,
    with_settings,
)

Json = dict[str, Any]
DISABLED = {"scaleDown": {"selectPolicy": "Disabled"}, "scaleUp": {"selectPolicy": "Disabled"}}
CHILD = Target("LeaderWorkerSet", "chat-aaaa1111-decode", "decode", 4, moves=True)
ROLE = Target("DisaggregatedSetRoleScaler", "chat-decode", "decode", 4)


def scaler(kind: str, *, owner: str = "", annotations: Json | None = None, **spec: Any) -> Json:
    body: Json = {"kind": kind, "metadata": {"name": "busy", "annotations": annotations or {}}, "spec": spec}
    if owner:
        body["metadata"]["ownerReferences"] = [{"kind": owner, "name": "boss", "controller": True}]
    return body


def hpa(low: int = 2, high: int = 9, **spec: Any) -> Json:
    return scaler(HPA, minReplicas=low, maxReplicas=high, **spec)


# --- HorizontalPodAutoscaler


def test_an_hpa_is_disabled_in_both_directions_and_keeps_its_bounds() -> None:
    assert plan_pause(hpa(), ROLE).settings == {"spec": {"behavior": DISABLED}}


def test_a_set_that_is_drained_must_not_fall_below_the_minimum() -> None:
    """Below it the controller scales up at once, whatever the policy."""
    assert plan_pause(hpa(2), CHILD).settings["spec"]["minReplicas"] == 1
    assert "minReplicas" not in plan_pause(hpa(1), CHILD).settings["spec"]


@pytest.mark.parametrize(
    ("low", "high", "replicas", "widened"),
    [
        (6, 9, 4, {"minReplicas": 4}),
        (1, 3, 4, {"maxReplicas": 4}),
        (2, 9, 0, {"minReplicas": 1}),
        (4, 4, 4, {}),
        (1, 9, None, {}),
    ],
)
def test_a_number_outside_of_the_bounds_is_taken_into_them(
    low: int, high: int, replicas: int | None, widened: Json
) -> None:
    found = plan_pause(hpa(low, high), Target("DisaggregatedSetRoleScaler", "x", "decode", replicas)).settings
    assert {key: value for key, value in found["spec"].items() if key != "behavior"} == widened


def test_one_direction_that_is_disabled_already_is_left_alone() -> None:
    found = plan_pause(hpa(behavior={"scaleUp": {"selectPolicy": "Disabled"}}), ROLE).settings
    assert found == {"spec": {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}}
    assert plan_pause(hpa(behavior=deepcopy(DISABLED)), ROLE).settings == {}


@given(st.integers(0, 9), st.integers(1, 20), st.integers(0, 30), st.booleans())
def test_a_paused_hpa_never_scales_what_the_operation_passes(
    low: int, high: int, replicas: int, moves: bool
) -> None:
    """The controller's own rule (horizontal.go): outside of the bounds it scales, inside it asks the policy, at 0 it
    does nothing."""
    body = hpa(low, max(low, high, 1))
    target = Target("LeaderWorkerSet", "x", "decode", replicas, moves=moves)
    paused = with_settings(body, merged(settings_of(body), plan_pause(body, target).settings))["spec"]
    for count in range(0 if moves else replicas, replicas + 1):
        assert count == 0 or paused["minReplicas"] <= count <= paused["maxReplicas"]
    assert all(paused["behavior"][way]["selectPolicy"] == "Disabled" for way in ("scaleUp", "scaleDown"))
    assert 0 <= paused["minReplicas"] <= paused["maxReplicas"], "the API server would refuse it"
    assert plan_pause(with_settings(body, settings_of({**body, "spec": paused})), target).settings == {}


# --- who owns it


def test_a_scaler_that_somebody_manages_cannot_be_paused() -> None:
    for kind in (HPA, SCALED_OBJECT, POD_AUTOSCALER):
        found = plan_pause({**scaler(kind, owner="InferenceService"), "spec": hpa()["spec"]}, ROLE)
        assert "InferenceService boss" in found.problem and not found.settings
    assert "Revision boss" in plan_pause(scaler(POD_AUTOSCALER, owner="Revision"), ROLE).problem


def test_an_hpa_that_another_scaler_made_is_left_to_it() -> None:
    assert is_made_by_scaler(scaler(HPA, owner="ScaledObject"))
    assert is_made_by_scaler(scaler(HPA, owner="PodAutoscaler"))
    assert not is_made_by_scaler(scaler(HPA, owner="Deployment"))
    assert not is_made_by_scaler(hpa()) and not is_made_by_scaler(scaler(SCALED_OBJECT, owner="ScaledObject"))


def test_what_a_scaler_aims_at() -> None:
    aimed = {"scaleTargetRef": {"kind": "LeaderWorkerSet", "name": "x"}}
    assert target_of({"kind": HPA, "metadata": {}, "spec": aimed}) == ("LeaderWorkerSet", "x")
    assert target_of(scaler(SCALED_OBJECT, scaleTargetRef={"name": "x"})) == ("Deployment", "x")
    assert target_of(scaler(HPA)) == ("Deployment", "")


# --- ScaledObject


@pytest.mark.parametrize(
    ("stands", "target", "wanted"),
    [
        ({}, CHILD, {KEDA_PAUSED: "true"}),
        ({KEDA_PAUSED: "false"}, CHILD, {KEDA_PAUSED: "true"}),
        ({KEDA_PAUSED: "true"}, CHILD, None),
        ({KEDA_PAUSED: "yes"}, CHILD, None),  # no boolean: KEDA takes it for true
        ({KEDA_PAUSED_REPLICAS: "4"}, ROLE, None),
        ({KEDA_PAUSED_REPLICAS: "5"}, ROLE, {KEDA_PAUSED: "true", KEDA_PAUSED_REPLICAS: None}),
        ({KEDA_PAUSED_REPLICAS: "4"}, CHILD, {KEDA_PAUSED: "true", KEDA_PAUSED_REPLICAS: None}),
        ({KEDA_PAUSED: "true", KEDA_PAUSED_REPLICAS: "2"}, CHILD, {KEDA_PAUSED_REPLICAS: None}),
    ],
)
def test_a_scaled_object_is_paused_where_it_stands(stands: Json, target: Target, wanted: Json | None) -> None:
    found = plan_pause(scaler(SCALED_OBJECT, annotations={"team": "a", **stands}), target)
    assert found.settings == ({"annotations": wanted} if wanted else {})
    assert not found.problem


# --- PodAutoscaler


def test_knative_is_held_at_one_number() -> None:
    found = plan_pause(scaler(POD_AUTOSCALER, annotations={KNATIVE_MIN: "1", KNATIVE_MAX: "4"}), ROLE)
    assert found.settings == {"annotations": {KNATIVE_MIN: "4"}}


@pytest.mark.parametrize(
    ("target", "spec"),
    [
        (CHILD, {}),
        (Target("DisaggregatedSetRoleScaler", "x", "decode", 0), {}),
        (Target("DisaggregatedSet", "x"), {}),
        (ROLE, {"reachability": "Unreachable"}),
    ],
)
def test_knative_cannot_be_held_at_a_number_that_moves_or_is_none(target: Target, spec: Json) -> None:
    found = plan_pause(scaler(POD_AUTOSCALER, **spec), target)
    assert found.problem and not found.settings


# --- there and back

LEAVES = st.one_of(st.integers(0, 3), st.sampled_from(["a", "b"]), st.lists(st.integers(0, 2), max_size=2))
KEYS = st.sampled_from("abcd")
TREES = st.recursive(
    st.dictionaries(KEYS, LEAVES, max_size=3),
    lambda below: st.dictionaries(KEYS, st.one_of(LEAVES, below.filter(bool)), max_size=3),
    max_leaves=8,
)


@given(TREES, TREES)
def test_nobody_in_between_everything_is_as_it_was(before: Json, after: Json) -> None:
    original, paused = difference(before, after)
    assert merged(before, difference(before, after)[1]) == after
    back = give_back(original, paused, after)
    assert merged(after, back.settings) == before and not back.kept


def leaves(tree: Json, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for key, value in tree.items():
        found |= leaves(value, (*path, key)) if isinstance(value, dict) else {(*path, key): value}
    return found


@given(TREES, TREES, TREES)
def test_somebody_in_between_keeps_what_they_chose_and_nothing_else(
    before: Json, after: Json, now: Json
) -> None:
    original, paused = difference(before, after)
    back = give_back(original, paused, now)
    end, here, ours, were = leaves(merged(now, back.settings)), leaves(now), leaves(after), leaves(before)
    for path, value in here.items():
        if ours.get(path) != value:  # theirs, or back already
            assert end.get(path) == value
    for path, value in end.items():
        assert value in (here.get(path), were.get(path)), "nothing is invented"
        assert path in here or path in were
    assert give_back(original, paused, merged(now, back.settings)).settings in (
        {},
        back.settings,
    ), "done over, it does nothing else"


def test_a_behavior_that_was_not_there_goes_with_the_defaults_that_came() -> None:
    stored = {
        "scaleDown": {"selectPolicy": "Disabled", "policies": [1]},
        "scaleUp": {"selectPolicy": "Disabled"},
    }
    before, after = {"spec": {"minReplicas": 2}}, {"spec": {"minReplicas": 1, "behavior": stored}}
    original, paused = difference(before, after)
    assert original == {"spec": {"behavior": None, "minReplicas": 2}}
    assert give_back(original, paused, after) == GivenBack({"spec": {"behavior": None, "minReplicas": 2}})
    touched = deepcopy(after)
    touched["spec"]["behavior"]["scaleUp"]["tolerance"] = "0.1"
    back = give_back(original, paused, touched)
    assert merged(touched, back.settings) == {
        "spec": {"minReplicas": 2, "behavior": {"scaleUp": {"tolerance": "0.1"}}}
    }


def test_what_somebody_chose_is_told_with_what_it_was() -> None:
    back = give_back({"spec": {"minReplicas": 2}}, {"spec": {"minReplicas": 1}}, {"spec": {"minReplicas": 5}})
    assert back.settings == {}
    (kept,) = back.kept
    assert (kept.path, kept.original, kept.paused, kept.now) == ("spec.minReplicas", 2, 1, 5)
    done = give_back({"spec": {"minReplicas": 2}}, {"spec": {"minReplicas": 1}}, {"spec": {"minReplicas": 2}})
    assert done == GivenBack({})


def test_a_record_that_others_wrote_reaches_no_other_field() -> None:
    forged = {
        "spec": {"minReplicas": 3, "scaleTargetRef": {"name": "other"}},
        "annotations": {"a": "b"},
        "x": 1,
    }
    assert allowed_settings(HPA, forged) == {"spec": {"minReplicas": 3}}
    assert allowed_settings(SCALED_OBJECT, forged) == {"annotations": {}}
    assert allowed_settings(POD_AUTOSCALER, "nonsense") == {}
    assert {name for names in FIELDS[HPA].values() for name in names} == {
        "behavior",
        "maxReplicas",
        "minReplicas",
    }


def test_the_rest_of_a_spec_is_what_pausing_left_alone() -> None:
    spec = {
        "behavior": {"scaleUp": {"selectPolicy": "Disabled", "policies": [1]}},
        "metrics": [1],
        "minReplicas": 1,
    }
    recorded = {"behavior": {"scaleUp": {"selectPolicy": "Max"}}, "minReplicas": 2}
    assert rest_of(spec, recorded) == {"behavior": {"scaleUp": {"policies": [1]}}, "metrics": [1]}
    assert changed_keys({"a": "1", "b": "2"}, {"b": "3", "c": "4"}) == ["a", "b", "c"]
