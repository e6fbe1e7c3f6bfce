"""What failures follow, shown on made-up pools of which the cause is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.chance import SplitMix64
from policy.probes.attribution import Doubt, Sides, Sight, attribute
from policy.probes.facts import Finding

A, B = "7c9e41b2", "d03fa885"
Grid = dict[str, tuple[list[str], list[str]]]


def grid(prefill: int, decode: int, *revisions: str) -> Grid:
    return {
        revision: (
            [f"{revision[:2]}-p{n}" for n in range(prefill)],
            [f"{revision[:2]}-d{n}" for n in range(decode)],
        )
        for revision in revisions
    }


def sights(
    pool: Grid,
    broken: Callable[[str, str, str, str], bool],
    *,
    mixed: bool,
    count: int = 120,
    seed: int = 1,
    rate: float = 1.0,
    noise: float = 0.0,
) -> list[Sight]:
    """Probes at random pods; those that meet the cause fail with `rate`, others with `noise`."""
    stream, found = SplitMix64(seed), []
    names = sorted(pool)
    for number in range(count):
        decode_revision = names[stream.below(len(names))]
        prefill_revision = names[stream.below(len(names))] if mixed else decode_revision
        prefill = pool[prefill_revision][0][stream.below(len(pool[prefill_revision][0]))]
        decode = pool[decode_revision][1][stream.below(len(pool[decode_revision][1]))]
        hit = broken(prefill_revision, prefill, decode_revision, decode)
        failed = stream.unit() < (rate if hit else noise)
        found.append(Sight(number, prefill, decode, prefill_revision, decode_revision, failed))
    return found


def only(found: list[Sight], sides: Sides = Sides()) -> Finding:  # noqa: B008 - frozen
    findings, doubts = attribute(found, sides)
    assert not doubts
    assert len(findings) == 1
    return findings[0]


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", ["d0-p1", "d0-d2"])
def test_one_broken_group_is_a_faulty_part_whatever_its_peer(name: str, mixed: bool) -> None:
    finding = only(
        sights(grid(3, 3, A, B), lambda _p, prefill, _d, decode: name in (prefill, decode), mixed=mixed)
    )
    assert (finding.kind, finding.id, finding.parts) == ("faulty-part", "faulty-group", (name,))
    assert "whatever its peer" in finding.sentence
    assert name in finding.next_action


def test_a_group_that_fails_now_and_then_is_found_among_noise() -> None:
    found = sights(
        grid(3, 3, A, B),
        lambda _p, prefill, _d, _n: prefill == "d0-p1",
        mixed=True,
        count=240,
        rate=0.5,
        noise=0.01,
    )
    finding = attribute(found, Sides())[0][0]
    assert (finding.kind, finding.parts) == ("faulty-part", ("d0-p1",))


def test_the_prefill_half_of_a_revision_fails_with_every_decode() -> None:
    finding = only(sights(grid(3, 3, A, B), lambda p, _a, _d, _b: p == B, mixed=True))
    assert (finding.id, finding.parts) == ("faulty-role", (B,))
    assert "the prefill half" in finding.sentence


def test_a_revision_that_fails_in_both_halves_with_everybody() -> None:
    finding = only(sights(grid(3, 3, A, B), lambda p, _a, d, _b: B in (p, d), mixed=True))
    assert (finding.id, finding.parts) == ("faulty-revision", (B,))


@pytest.mark.parametrize(("prefill", "decode"), [(1, 1), (3, 2)])
def test_revisions_that_fail_only_across_are_an_unsupported_pair(prefill: int, decode: int) -> None:
    both = only(sights(grid(prefill, decode, A, B), lambda p, _a, d, _b: p != d, mixed=True))
    assert (both.kind, both.id, both.parts) == ("unsupported-pair", "revisions-do-not-fit", (A, B))
    assert "in either direction" in both.sentence
    one = only(sights(grid(prefill, decode, A, B), lambda p, _a, d, _b: (p, d) == (A, B), mixed=True))
    assert (one.kind, one.parts) == ("unsupported-pair", (A, B))
    assert f"where {A} prefills for {B}" in one.sentence


def test_one_connection_of_groups_that_serve_otherwise_is_a_stale_agent() -> None:
    finding = only(
        sights(
            grid(2, 2, A, B),
            lambda _p, prefill, _d, decode: (prefill, decode) == ("d0-p0", "d0-d1"),
            mixed=False,
        )
    )
    assert (finding.kind, finding.id) == ("wrong-setting", "stale-agent")
    assert finding.parts == ("d0-d1", "d0-p0")
    assert finding.next_action.startswith("Restart d0-d1")


def test_two_causes_are_both_found() -> None:
    found = sights(
        grid(3, 3, A, B),
        lambda p, prefill, d, _b: prefill == "7c-p0" or (p, d) == (A, B),
        mixed=True,
        count=240,
    )
    findings, doubts = attribute(found, Sides())
    assert {finding.kind for finding in findings} == {"faulty-part", "unsupported-pair"}
    assert not doubts


def doubt_of(found: list[Sight], sides: Sides = Sides()) -> Doubt:  # noqa: B008 - frozen
    findings, (doubt,) = attribute(found, sides)
    assert not findings
    return doubt


def test_halves_that_met_nobody_else_cannot_be_told_apart_by_probes_alone() -> None:
    """With a router that keeps revisions apart, a broken half and halves that do not fit look the same."""
    found = sights(grid(2, 2, A, B), lambda _p, _a, d, _b: d == B, mixed=False)
    doubt = doubt_of(found)
    assert B in doubt.sentence
    assert doubt.next_action == "Ask each half directly, or probe it with another peer."
    assert set(doubt.probes) == {sight.number for sight in found if sight.failed}


def test_halves_that_each_work_alone_do_not_fit() -> None:
    pool = grid(2, 2, A, B)
    found = sights(pool, lambda _p, _a, d, _b: d == B, mixed=False)
    finding = only(found, Sides(serving=frozenset([*pool[B][0], *pool[B][1]])))
    assert (finding.kind, finding.id, finding.parts) == ("unsupported-pair", "halves-do-not-fit", (B, B))


def test_prefill_that_finishes_and_decode_that_cannot_read_do_not_fit() -> None:
    pool = grid(2, 2, A, B)
    found = sights(pool, lambda _p, _a, d, _b: d == B, mixed=False)
    sides = Sides(serving=frozenset(pool[B][0]), unread=frozenset(pool[B][1]))
    assert only(found, sides).kind == "unsupported-pair"


def test_failures_without_any_group_seen_follow_the_revision_that_was_asked() -> None:
    found = [Sight(n, "", "", "", B if n % 2 else A, bool(n % 2)) for n in range(40)]
    finding = only(found)
    assert (finding.kind, finding.id, finding.parts) == ("faulty-part", "faulty-revision", (B,))


def test_failures_that_follow_nothing_are_said_to_be_unexplained() -> None:
    found = sights(grid(3, 3, A, B), lambda *_: False, mixed=True, noise=0.2)
    doubt = doubt_of(found)
    assert "follow no part and no pair" in doubt.sentence


def test_if_all_fail_there_is_nothing_to_compare() -> None:
    assert doubt_of(sights(grid(1, 1, B), lambda *_: True, mixed=False, count=10)).probes == tuple(range(10))


def test_no_failure_is_no_finding() -> None:
    assert attribute(sights(grid(3, 3, A, B), lambda *_: False, mixed=True), Sides()) == ([], [])


Kind = Literal["part", "pair", "connection"]


@settings(max_examples=40)
@given(
    st.sampled_from(["part", "pair", "connection"]),
    st.integers(2, 4),
    st.integers(2, 4),
    st.integers(0, 10_000),
)
def test_a_cause_is_named_rightly_or_not_at_all(kind: Kind, prefill: int, decode: int, seed: int) -> None:
    pool = grid(prefill, decode, A, B)
    stream = SplitMix64(seed)
    bad_prefill = pool[B][0][stream.below(prefill)]
    bad_decode = pool[A][1][stream.below(decode)]
    cause: dict[Kind, Callable[[str, str, str, str], bool]] = {
        "part": lambda _p, a, _d, _b: a == bad_prefill,
        "pair": lambda p, _a, d, _b: (p, d) == (B, A),
        "connection": lambda _p, a, _d, b: (a, b) == (bad_prefill, bad_decode),
    }
    expected = {"part": "faulty-part", "pair": "unsupported-pair", "connection": "wrong-setting"}
    findings, _ = attribute(sights(pool, cause[kind], mixed=True, count=200, seed=seed), Sides())
    assert {finding.kind for finding in findings} <= {expected[kind]}


def test_chance_alone_is_taken_for_a_cause_in_at_most_one_of_fifty_series() -> None:
    alarms = sum(
        bool(
            attribute(sights(grid(3, 3, A, B), lambda *_: False, mixed=True, seed=seed, noise=0.05), Sides())[
                0
            ]
        )
        for seed in range(500)
    )
    print(f"5 % of probes fail at random: a cause is named in {alarms} of 500 series")
    assert alarms <= 10
