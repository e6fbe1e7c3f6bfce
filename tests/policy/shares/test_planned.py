from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.shares import (
    PathFacts,
    PlannedLane,
    PlannedShares,
    PodCount,
    PoolFacts,
    RouteFacts,
    Screener,
    planned_shares,
)

OLD, NEW = "7c9e41b2", "d03fa885"
BOTH = ("prefill", "decode")
MAX_ROLE = Screener("max-role", BOTH)


def pods(revision: str, prefill: int, decode: int, **fields: int) -> tuple[PodCount, PodCount]:
    return PodCount(revision, "prefill", prefill, **fields), PodCount(revision, "decode", decode, **fields)


def pool(
    *counts: PodCount, name: str = "llama", screener: Screener | None = MAX_ROLE, **fields: object
) -> PoolFacts:
    return replace(PoolFacts(name, counts, screener, decider="always"), **fields)  # type: ignore[arg-type]


def plan_of(*pools: PoolFacts, weights: tuple[int, ...] = (1,)) -> PlannedShares:
    split = tuple((each.name, weight) for each, weight in zip(pools, weights, strict=True))
    return planned_shares(PathFacts(pools, (RouteFacts("chat", split),)))


def lane(shares: PlannedShares, revision: str, name: str = "llama") -> PlannedLane:
    return next(each for each in shares.lanes if (each.pool, each.revision) == (name, revision))


def reasons(shares: PlannedShares, revision: str, name: str = "llama") -> list[str]:
    return [reason.id for reason in lane(shares, revision, name).reasons]


def pairs(shares: PlannedShares) -> dict[tuple[str, str], tuple[bool, str]]:
    return {(pair.prefill[1], pair.decode[1]): (pair.allowed, pair.reason.id) for pair in shares.pairs}


def test_the_real_router_at_a_hold_gave_the_old_revision_four_of_five() -> None:
    shares = plan_of(pool(*pods(OLD, 4, 2), *pods(NEW, 1, 1)))
    assert (lane(shares, OLD).share, lane(shares, NEW).share) == (0.8, 0.2)
    assert all(each.drawn for each in shares.lanes)


@pytest.mark.parametrize(("mode", "old"), [("max-role", 9 / 10), ("sum", 11 / 13)])
def test_two_prefill_and_ten_decode_as_the_router_documents_it(mode: str, old: float) -> None:
    shares = plan_of(pool(*pods(OLD, 2, 9), *pods(NEW, 1, 1), screener=Screener(mode, BOTH)))  # type: ignore[arg-type]
    assert lane(shares, OLD).share == pytest.approx(old)


def test_the_largest_role_is_looked_for_among_complete_revisions_alone() -> None:
    third = PodCount("aaaa1111", "prefill", 50)
    shares = plan_of(pool(*pods(OLD, 2, 9), *pods(NEW, 1, 3), third))
    assert lane(shares, OLD).share == 0.75
    assert reasons(shares, "aaaa1111") == ["role-missing", "no-decode-in-pool"]


def test_at_a_tie_the_role_named_first_counts() -> None:
    counts = (*pods(OLD, 3, 1), *pods(NEW, 1, 3))
    assert lane(plan_of(pool(*counts)), OLD).share == 0.75
    assert (
        lane(plan_of(pool(*counts, screener=Screener("max-role", ("decode", "prefill")))), OLD).share == 0.25
    )


def test_a_zero_says_which_role_is_missing() -> None:
    shares = plan_of(pool(*pods(OLD, 4, 2), *pods(NEW, 0, 1)))
    (reason,) = lane(shares, NEW).reasons
    assert reason.id == "role-missing"
    assert reason.sentence == f"{NEW} is incomplete: role prefill without a ready pod."
    assert lane(shares, OLD).share == 1.0


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (pods(NEW, 0, 0), ["no-ready-pods"]),
        (pods(NEW, 1, 1, in_scope=0), ["scope-mismatch"]),
        (pods(NEW, 1, 1, in_pool=0), ["not-in-pool"]),
        (pods(NEW, 1, 1, in_pool=0, in_scope=0), ["scope-mismatch", "not-in-pool"]),
    ],
)
def test_every_zero_has_its_reason(counts: tuple[PodCount, ...], expected: list[str]) -> None:
    shares = plan_of(pool(*pods(OLD, 4, 2), *counts))
    assert reasons(shares, NEW) == expected
    assert lane(shares, OLD).share == 1.0


def test_a_pool_of_weight_zero_and_one_without_a_route() -> None:
    blue, green = pool(*pods(OLD, 4, 2), name="blue"), pool(*pods(NEW, 4, 2), name="green")
    alone = pool(*pods("aaaa1111", 1, 1), name="alone")
    split = (("blue", 1), ("green", 0))
    shares = planned_shares(PathFacts((blue, green, alone), (RouteFacts("chat", split),)))
    assert reasons(shares, NEW, "green") == ["weight-zero"]
    assert reasons(shares, "aaaa1111", "alone") == ["no-route"]
    assert lane(shares, OLD, "blue").share == 1.0


def test_weights_split_over_pools_and_pairs_never_cross_pools() -> None:
    shares = plan_of(
        pool(*pods(OLD, 4, 2), name="blue"), pool(*pods(NEW, 4, 2), name="green"), weights=(9, 1)
    )
    assert lane(shares, OLD, "blue").share == 0.9
    assert pairs(shares)[OLD, NEW] == (False, "different-pools")


def test_the_draw_keeps_pairs_inside_a_revision() -> None:
    seen = pairs(plan_of(pool(*pods(OLD, 4, 2), *pods(NEW, 1, 1))))
    assert seen[OLD, OLD] == (True, "same-revision")
    assert seen[OLD, NEW] == (False, "kept-apart")
    incomplete = pairs(plan_of(pool(*pods(OLD, 4, 2), *pods(NEW, 0, 1))))
    assert incomplete[NEW, NEW] == (False, "no-pods")


@pytest.mark.parametrize("screener", [None, Screener("disabled")])
def test_without_a_draw_revisions_mix_and_shares_are_only_expected(screener: Screener | None) -> None:
    shares = plan_of(pool(*pods(OLD, 4, 3), *pods(NEW, 1, 1), screener=screener))
    assert pairs(shares)[OLD, NEW] == (True, "nothing-keeps-apart")
    assert pairs(shares)[NEW, OLD][0]
    assert lane(shares, NEW).share == 0.25
    assert not lane(shares, NEW).drawn
    assert [note.id for note in shares.notes] == ["no-rule"]


def test_without_a_draw_a_revision_without_prefill_borrows_from_the_other() -> None:
    shares = plan_of(pool(*pods(OLD, 4, 3), *pods(NEW, 0, 1), screener=None))
    assert {edge.kind for edge in shares.edges} == {"prefilled"}
    assert pairs(shares)[OLD, NEW][0]
    assert not pairs(shares)[NEW, OLD][0]


def test_a_draw_that_does_not_require_prefill_makes_decode_only_requests() -> None:
    half = Screener("sum", ("decode",))
    shares = plan_of(pool(*pods(OLD, 4, 3), *pods(NEW, 0, 1), screener=half))
    kinds = {edge.revision: (edge.kind, edge.share) for edge in shares.edges}
    assert kinds == {OLD: ("prefilled", 0.75), NEW: ("decode-only", 0.25)}
    assert "roles-not-required" in [note.id for note in shares.notes]


def test_a_pool_that_selects_half_a_revision_is_seen() -> None:
    """The screener counts by its scope, so such a revision is drawn all the same."""
    hidden = (PodCount(NEW, "prefill", 1), PodCount(NEW, "decode", 1, in_pool=0))
    shares = plan_of(pool(*pods(OLD, 4, 2), *hidden))
    refused = next(edge for edge in shares.edges if edge.kind == "refused")
    assert (refused.revision, refused.share) == (NEW, 0.2)
    assert refused.reason is not None and "503" in refused.reason.sentence
    assert reasons(shares, NEW) == ["no-decode-in-pool"]
    shy = (PodCount(NEW, "prefill", 1, in_pool=0), PodCount(NEW, "decode", 1))
    edges = {edge.revision: edge.kind for edge in plan_of(pool(*pods(OLD, 4, 2), *shy)).edges}
    assert edges[NEW] == "decode-only"


@pytest.mark.parametrize(
    ("decider", "kind"),
    [("always", "prefilled"), ("never", "decode-only"), ("by-prompt", "unsplit"), ("unknown", "unsplit")],
)
def test_the_decider_decides_who_prefills(decider: str, kind: str) -> None:
    shares = plan_of(pool(*pods(OLD, 4, 2), decider=decider))
    assert [(edge.kind, edge.share) for edge in shares.edges] == [(kind, 1.0)]


def test_without_a_router_requests_are_refused_or_go_anywhere() -> None:
    closed = plan_of(pool(*pods(OLD, 4, 2), router_ready=False))
    assert [(edge.kind, edge.share) for edge in closed.edges] == [("refused", 1.0)]
    assert reasons(closed, OLD) == ["router-down"]
    opened = plan_of(pool(*pods(OLD, 4, 2), router_ready=False, fail_open=True))
    assert [(edge.kind, edge.share) for edge in opened.edges] == [("unknown", 1.0)]
    assert (lane(opened, OLD).share, lane(opened, OLD).at_most) == (0.0, 1.0)
    assert pairs(opened)[OLD, OLD] == (False, "router-down")


def test_routes_of_unknown_traffic_are_told_as_far_as_they_agree() -> None:
    blue, green = pool(*pods(OLD, 4, 2), name="blue"), pool(*pods(NEW, 4, 2), name="green")
    chat = RouteFacts("chat", (("blue", 9), ("green", 1)))
    batch = RouteFacts("batch", (("blue", 1), ("green", 1)))
    unknown = planned_shares(PathFacts((blue, green), (chat, batch)))
    assert (lane(unknown, OLD, "blue").share, lane(unknown, OLD, "blue").at_most) == (0.5, 0.9)
    assert {edge.kind: edge.share for edge in unknown.edges}["unknown"] == pytest.approx(0.4)
    known = planned_shares(
        PathFacts((blue, green), (replace(chat, traffic=300), replace(batch, traffic=100)))
    )
    assert lane(known, OLD, "blue").share == pytest.approx(0.8)
    assert not [edge for edge in known.edges if edge.kind == "unknown"]


@pytest.mark.parametrize("routes", [(), (RouteFacts("chat", (("llama", 0),)),)])
def test_no_route_and_all_weights_zero_refuse_everything(routes: tuple[RouteFacts, ...]) -> None:
    shares = planned_shares(PathFacts((pool(*pods(OLD, 4, 2)),), routes))
    assert [(edge.kind, edge.share) for edge in shares.edges] == [("refused", 1.0)]


def test_a_route_to_a_pool_without_facts_is_an_error() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        planned_shares(PathFacts((), (RouteFacts("chat", (("nowhere", 1),)),)))


COUNTS = st.builds(
    PodCount,
    revision=st.sampled_from([OLD, NEW, "aaaa1111"]),
    role=st.sampled_from(["prefill", "decode", "both", "encode"]),
    ready=st.integers(0, 5),
    in_scope=st.none() | st.integers(0, 5),
    in_pool=st.none() | st.integers(0, 5),
)
SCREENERS = st.none() | st.builds(
    Screener,
    mode=st.sampled_from(["sum", "max-role", "disabled"]),
    required_roles=st.sampled_from([(), BOTH, ("decode",), ("prefill", "decode", "encode")]),
)


def pools_named(name: str) -> st.SearchStrategy[PoolFacts]:
    return st.builds(
        PoolFacts,
        name=st.just(name),
        pods=st.lists(COUNTS, max_size=6, unique_by=lambda each: (each.revision, each.role)).map(tuple),
        screener=SCREENERS,
        router_ready=st.booleans(),
        fail_open=st.booleans(),
        decider=st.sampled_from(["always", "never", "by-prompt", "unknown"]),
    )


ROUTES = st.lists(
    st.builds(
        RouteFacts,
        name=st.just("r"),
        weights=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)), max_size=3).map(tuple),
        traffic=st.none() | st.integers(0, 100),
    ),
    max_size=3,
).map(tuple)


@given(pools_named("a"), pools_named("b"), ROUTES)
def test_shares_always_add_up_and_every_zero_has_a_reason(
    first: PoolFacts, second: PoolFacts, routes: tuple[RouteFacts, ...]
) -> None:
    shares = planned_shares(PathFacts((first, second), routes))
    assert math.fsum(edge.share for edge in shares.edges) == pytest.approx(1.0)
    assert all(edge.share > 0 for edge in shares.edges)
    for each in shares.lanes:
        assert 0.0 <= each.share <= each.at_most <= 1.0
        assert each.share > 0 or each.reasons or each.at_most > 0
        assert not (each.share and each.reasons)
    served = math.fsum(each.share for each in shares.lanes)
    other = math.fsum(edge.share for edge in shares.edges if edge.kind in ("refused", "unknown"))
    assert served + other == pytest.approx(1.0)
