"""Leftovers: what is proved must hold in every maximal packing, found here by trying every order."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import policy.topology.packing as packing
from policy.topology.packing import Kind, leftover

RESOURCES = ("gpu", "cpu")


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Kind], list[dict[str, int]]]:
    bins = [{name: draw(st.integers(-1, 5)) for name in RESOURCES} for _ in range(draw(st.integers(1, 3)))]
    kinds = []
    for _ in range(draw(st.integers(1, 3))):
        amounts = tuple((name, draw(st.integers(1, 3))) for name in RESOURCES)
        count = draw(st.integers(1, 3))
        kinds.append(
            Kind(amounts, draw(st.integers(0, 2 ** len(bins) - 1)), count, draw(st.integers(0, count)))
        )
    return kinds, bins


def every_end(kinds: list[Kind], bins: list[dict[str, int]]) -> set[tuple[int, ...]]:
    """Counts left of each kind over all orders and all choices of bins."""

    @cache
    def ends(waiting: tuple[int, ...], free: tuple[tuple[int, ...], ...]) -> frozenset[tuple[int, ...]]:
        found: set[tuple[int, ...]] = set()
        for k, kind in enumerate(kinds):
            for b, amounts in enumerate(free):
                rest = tuple(have - need for have, (_, need) in zip(amounts, kind.amounts, strict=True))
                if waiting[k] and kind.bins >> b & 1 and min(rest) >= 0:
                    fewer = (*waiting[:k], waiting[k] - 1, *waiting[k + 1 :])
                    found |= ends(fewer, (*free[:b], rest, *free[b + 1 :]))
        return frozenset(found or {waiting})

    return set(
        ends(
            tuple(kind.count for kind in kinds),
            tuple(tuple(amounts[name] for name in RESOURCES) for amounts in bins),
        )
    )


def check(kinds: list[Kind], bins: list[dict[str, int]], *, complete: bool) -> None:
    ends = every_end(kinds, bins)
    left = leftover(kinds, bins)
    hit = [any(n and kind.count > kind.ahead for n, kind in zip(end, kinds, strict=True)) for end in ends]
    sums = [sum(end) for end in ends]
    assert not left.never or not any(hit)
    assert not left.always or all(hit)
    assert left.fewest <= min(sums)
    assert left.most is None or left.most >= max(sums)
    if complete:
        assert (left.never, left.always) == (not any(hit), all(hit))
        assert (left.fewest, left.most) == (min(sums), max(sums))


@settings(max_examples=300, deadline=None)
@given(problems())
def test_small_problems_are_solved_exactly(problem: tuple[list[Kind], list[dict[str, int]]]) -> None:
    check(*problem, complete=True)


@settings(max_examples=300, deadline=None)
@given(problems())
def test_without_the_search_everything_proved_still_holds(
    problem: tuple[list[Kind], list[dict[str, int]]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "STEPS", 0)
        check(*problem, complete=False)


def test_spreading_small_items_can_shut_out_a_large_one() -> None:
    bins = [{"gpu": 8}, {"gpu": 8}]
    kinds = [Kind((("gpu", 4),), 0b11, 2), Kind((("gpu", 8),), 0b11, 1)]
    left = leftover(kinds, bins)
    assert (left.never, left.always, left.fewest, left.most) == (False, False, 0, 1)


def test_room_to_spare_is_enough_for_any_order() -> None:
    bins = [{"gpu": 8} for _ in range(1000)]
    everywhere = 2**1000 - 1
    kinds = [Kind((("gpu", size),), everywhere, 50) for size in (1, 2, 4, 8)]
    assert leftover(kinds, bins).never


def test_sums_prove_a_lack_where_search_is_too_long() -> None:
    bins = [{"gpu": 8} for _ in range(200)]
    everywhere = 2**200 - 1
    kinds = [Kind((("gpu", size),), everywhere, 200) for size in (2, 4, 6)]
    assert leftover(kinds, bins).always


def test_sums_count_only_what_whole_items_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "STEPS", 0)
    kinds = [Kind((("gpu", 4),), 0b11, 1), Kind((("gpu", 2),), 0b11, 1)]
    assert not leftover(kinds, [{"gpu": 4}, {"gpu": 2}]).always
    assert leftover(kinds, [{"gpu": 4}, {"gpu": 1}]).always
    twice = [Kind((("gpu", 4),), 0b11, 1), Kind((("gpu", 2),), 0b11, 2)]
    assert leftover(twice, [{"gpu": 7}, {"gpu": 1}]).always


@pytest.mark.parametrize(("free", "fewest"), [(7, 2), (8, 1)])
def test_odd_devices_are_of_no_use_to_pairs(free: int, fewest: int) -> None:
    assert leftover([Kind((("gpu", 2),), 0b1, 5)], [{"gpu": free}]).exact == fewest
