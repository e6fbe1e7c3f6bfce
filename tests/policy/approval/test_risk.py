"""Risk: the environment sets the span, facts only ever raise, and every one of them is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.approval.risk import LEVELS, RiskFacts, RiskPolicy, assess_risk, is_higher

facts = st.builds(
    RiskFacts,
    environment=st.sampled_from(["development", "staging", "production"]),
    devices_now=st.integers(0, 200),
    peak_devices=st.integers(0, 200),
    roles_without_surge=st.lists(st.sampled_from(["prefill", "decode"]), unique=True).map(tuple),
    off_default_bounds=st.lists(st.text(max_size=5), max_size=2).map(tuple),
    fast_profile=st.booleans(),
)


@pytest.mark.parametrize(
    ("environment", "plain", "raised"),
    [("development", "low", "low"), ("staging", "low", "medium"), ("production", "medium", "high")],
)
def test_span_of_each_environment(environment: str, plain: str, raised: str) -> None:
    def risk(**more: object) -> str:
        return assess_risk(RiskFacts(environment, 8, 16, **more)).level  # type: ignore[arg-type]

    assert risk() == plain
    assert risk(roles_without_surge=("decode",)) == raised
    assert risk(off_default_bounds=("minimum ready of decode: 1 instead of 2",)) == raised
    assert risk(fast_profile=True) == raised
    assert assess_risk(RiskFacts(environment, 8, 64)).level == raised  # type: ignore[arg-type]


def test_reasons_name_roles_bounds_and_numbers() -> None:
    risk = assess_risk(
        RiskFacts("production", 40, 72, ("prefill", "decode"), ('hold "half" left out',), fast_profile=True)
    )
    assert [reason.code for reason in risk.reasons] == [
        "environment", "no-surge", "bounds-off-default", "large-peak", "fast-profile",
    ]  # fmt: skip
    text = " ".join(reason.sentence for reason in risk.reasons)
    for part in ("prefill, decode", 'hold "half" left out', "72 devices", "40 now", "64"):
        assert part in text


@given(facts)
def test_facts_never_lower_the_class(given_facts: RiskFacts) -> None:
    bare = RiskFacts(given_facts.environment, given_facts.devices_now, 0)
    risk = assess_risk(given_facts)
    assert not is_higher(assess_risk(bare).level, risk.level)
    assert (risk.level == assess_risk(bare).level) or len(risk.reasons) > 1


@given(facts, st.sampled_from(LEVELS), st.sampled_from(LEVELS))
def test_a_span_that_ends_below_its_start_keeps_the_start(
    given_facts: RiskFacts, first: str, last: str
) -> None:
    policy = RiskPolicy({given_facts.environment: (first, last)}, 64)  # type: ignore[dict-item]
    assert not is_higher(first, assess_risk(given_facts, policy).level)  # type: ignore[arg-type]
