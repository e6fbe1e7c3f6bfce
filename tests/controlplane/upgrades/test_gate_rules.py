"""Gates of a plan: what may be changed, what is approved of them, and what letting more pass costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.errors import BadInput
from controlplane.upgrades.gate_rules import FIELDS, IDS, gates_of, read_gates, rules_of, weakened, with_rules
from policy.canonical import canonical_json
from policy.gates import Gate, default_gates
from tests.controlplane.upgrades.given import checked, live_set, pair, with_image

Json = dict[str, Any]
ENVIRONMENTS: Any = ("production", "staging", "development")


def gate(environment: Any, name: str, changes: Json) -> Gate:
    return next(each for each in gates_of(environment, read_gates(changes)) if each.id == name)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_without_changes_the_gates_are_the_environments(environment: Any) -> None:
    assert gates_of(environment, read_gates({})) == default_gates(environment)
    assert weakened(environment, {}) == []


def test_what_is_changed_holds_and_the_rest_stays() -> None:
    changed = gate("production", "ttft", {"ttft": {"threshold": 1.5, "minimum_samples": 50}})
    assert (changed.threshold, changed.minimum_samples, changed.window_s) == (1.5, 50, 600)
    assert gate("production", "parity", {"ttft": {"threshold": 1.5}}) == default_gates("production")[7]


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ([], ""),
        ({"speed": {"threshold": 1}}, ".speed"),
        ({"ttft": {}}, ".ttft"),
        ({"ttft": 1.5}, ".ttft"),
        ({"ttft": {"treshold": 1.5}}, ".ttft.treshold"),
        *[({"ttft": {"threshold": bad}}, ".ttft.threshold") for bad in (True, None, -1, float("nan"), "x", 0, [])],
        *[({"ttft": {"window_s": bad}}, ".ttft.window_s") for bad in (29, 86_401, 60.5, "60", True)],
        *[({"ttft": {"minimum_samples": bad}}, ".ttft.minimum_samples") for bad in (0, 1.5, "9", True)],
        *[({"ttft": {"required": bad}}, ".ttft.required") for bad in (0, "no", None)],
        ({name: {"required": False} for name in ("failed-transfers", "probe-success", "parity")}, ""),
    ],
)  # fmt: skip
def test_what_is_no_change_of_a_gate_is_refused_by_field(sent: Any, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_gates(sent)
    assert (refused.value.code, refused.value.field) == ("option-invalid", f"options.gates{field}")


changes = st.dictionaries(
    st.sampled_from(IDS),
    st.fixed_dictionaries(
        {},
        optional={
            "threshold": st.floats(0.001, 100),
            "window_s": st.integers(30, 86_400),
            "minimum_samples": st.integers(1, 10_000),
            "required": st.booleans(),
        },
    ).filter(bool),
    max_size=4,
)


@given(changes, st.sampled_from(ENVIRONMENTS))
def test_what_was_read_reads_the_same_and_what_is_approved_is_what_is_judged(
    sent: Json, environment: Any
) -> None:
    try:
        read = read_gates(sent)
    except BadInput:
        return
    canonical_json(read)
    assert read_gates(read) == read
    gates = gates_of(environment, read)
    rules = rules_of(gates)
    canonical_json(rules)
    assert with_rules(environment, rules) == gates
    for usual, now in zip(default_gates(environment), gates, strict=True):
        sent_here = sent.get(usual.id, {})
        for field in FIELDS:
            assert getattr(now, field) == sent_here.get(field, getattr(usual, field))


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ({"ttft": {"threshold": 2}}, "ttft at most 2 instead of 1.25"),
        ({"disaggregated-share": {"threshold": 0.5}}, "disaggregated-share at least 0.5 instead of 0.9"),
        ({"parity": {"required": False}}, "parity only shown"),
        ({"error-ratio": {"minimum_samples": 10}}, "error-ratio with 10 samples instead of 1000"),
        ({"queue": {"window_s": 60}}, "queue over 60 s instead of 600 s"),
        ({"queue": {"window_s": 6000}}, "queue over 6000 s instead of 600 s"),
        ({"ttft": {"threshold": 1.1}}, ""),
        ({"disaggregated-share": {"threshold": 0.95}}, ""),
        ({"error-ratio": {"minimum_samples": 2000}}, ""),
        ({"parity": {"required": True}}, ""),
    ],
)
def test_letting_more_pass_is_told_and_letting_less_pass_is_not(sent: Json, says: str) -> None:
    said = weakened("production", read_gates(sent))
    assert said == ([f"gate {says}"] if says else [])


def test_a_gate_that_blocks_nothing_may_be_anything() -> None:
    assert weakened("development", read_gates({"ttft": {"threshold": 50}})) == []
    assert weakened("development", read_gates({"parity": {"required": False}})) == ["gate parity only shown"]


def test_the_bounds_carry_the_gates_and_the_risk_grows_with_what_they_let_pass() -> None:
    def plan(**options: Any) -> Any:
        return checked(live_set(pair()), with_image(pair()), **options)

    usual, loose = plan(), plan(gates={"parity": {"required": False}})
    tight = plan(gates={"ttft": {"threshold": 1.1}})
    assert (usual.bounds["risk"], loose.bounds["risk"], tight.bounds["risk"]) == ("medium", "high", "medium")
    assert "gate parity only shown" in " ".join(loose.bounds["risk_reasons"])
    assert len({usual.digest, loose.digest, tight.digest}) == 3, "votes are on these gates"
    assert {rule["id"] for rule in usual.bounds["gates"]} == set(IDS)
