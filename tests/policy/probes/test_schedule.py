from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.chance import SplitMix64
from policy.probes import Group, Schedule, draws_to_cover, fixed_prompts, plan_probes

NEW = "d03fa885"
PROMPTS = fixed_prompts()


def groups(prefill: int, decode: int, revision: str = NEW) -> list[Group]:
    return [Group(f"{revision}-p-{n}", "prefill", revision) for n in range(prefill)] + [
        Group(f"{revision}-d-{n}", "decode", revision) for n in range(decode)
    ]


def plan(found: list[Group], **fields: object) -> Schedule:
    return plan_probes(found, PROMPTS, **({"warmup": 4, "cap_per_second": 2.0, "seed": 1} | fields))  # type: ignore[arg-type]


def test_a_series_warms_up_first_and_then_sends_every_prompt() -> None:
    schedule = plan(groups(1, 1))
    assert [probe.warmup for probe in schedule.probes] == [True] * 4 + [False] * 24
    counted = [probe for probe in schedule.probes if not probe.warmup]
    assert schedule.counted == 24
    assert sorted(probe.prompt for probe in counted) == [prompt.id for prompt in PROMPTS]
    assert len({probe.salt for probe in schedule.probes}) == 28
    assert [probe.number for probe in schedule.probes] == list(range(28))


def test_every_revision_has_its_series_and_they_take_turns() -> None:
    schedule = plan([*groups(1, 1), *groups(2, 2, "7c9e41b2")])
    assert Counter(probe.revision for probe in schedule.probes) == {NEW: 28, "7c9e41b2": 28}
    assert {probe.revision for probe in schedule.probes[:2]} == {NEW, "7c9e41b2"}


def test_many_groups_need_more_probes_than_there_are_prompts() -> None:
    assert plan(groups(2, 2)).counted == 24
    assert plan(groups(16, 4)).counted == draws_to_cover(groups(16, 4), NEW) > 100


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(1, 12), st.floats(0.1, 20.0), st.integers(0, 5))
def test_no_second_has_more_probes_than_the_cap(prefill: int, decode: int, cap: float, warmup: int) -> None:
    schedule = plan(groups(prefill, decode), cap_per_second=cap, warmup=warmup)
    times = [probe.at_s for probe in schedule.probes]
    assert times == sorted(times) and times[0] == 0.0
    assert all(later - earlier >= 1 / cap - 1e-9 for earlier, later in zip(times, times[1:], strict=False))
    assert schedule.duration_s == times[-1]


@pytest.mark.parametrize(("prefill", "decode"), [(1, 3), (6, 4), (20, 20)])
def test_even_picks_reach_every_group_in_ninety_nine_of_a_hundred_series(prefill: int, decode: int) -> None:
    stream, missed = SplitMix64(8), 0
    draws = draws_to_cover(groups(prefill, decode), NEW)
    for _ in range(1_000):
        seen = [{stream.below(size) for _ in range(draws)} for size in (prefill, decode)]
        missed += (len(seen[0]), len(seen[1])) != (prefill, decode)
    print(f"{prefill} prefill and {decode} decode groups: {draws} probes, {missed} of 1000 series missed one")
    assert missed <= 20


def test_a_seed_repeats_a_series_and_another_does_not() -> None:
    assert plan(groups(1, 1)) == plan(groups(1, 1))
    assert plan(groups(1, 1)) != plan(groups(1, 1), seed=2)


@pytest.mark.parametrize(
    "fields", [{"warmup": -1}, {"cap_per_second": 0.0}, {"cap_per_second": float("nan")}]
)
def test_numbers_that_make_no_series_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        plan(groups(1, 1), **fields)
    with pytest.raises(ValueError):
        plan([])
