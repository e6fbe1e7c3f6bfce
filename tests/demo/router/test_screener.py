"""Which revision a request may use: shares by what can serve, one draw, strict headers."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.demo.router.fleet import Endpoint, Pod, pod_of
from deploy.demo.router.screener import HeaderSelector, Screener
from deploy.demo.router.selectors import Selector, from_object, parse_selector
from tests.demo.router.cluster import pod as pod_document
from tests.demo.router.cluster import revision_pods

SCOPE = parse_selector("disaggregatedset.x-k8s.io/name=qwen")
REVISION = HeaderSelector("revision", "x-disagg-revision", "disaggregatedset.x-k8s.io/revision", "strict")
SLICE = HeaderSelector("slice", "x-disagg-slice", "disaggregatedset.x-k8s.io/slice", "prefer")


def screener(mode: str, *roles: str) -> Screener:
    """A screener over prefill and decode, with a strict revision header and a preferred slice."""
    return Screener("s", SCOPE, mode, roles or ("prefill", "decode"), (REVISION, SLICE))


def pods(**revisions: tuple[int, int]) -> list[Pod]:
    """Ready pods: revision=(prefill, decode)."""
    return [
        pod_of(document)
        for net, (revision, (prefill, decode)) in enumerate(revisions.items())
        for document in revision_pods(revision, prefill, decode, 252 + net)
    ]


def endpoints(found: list[Pod]) -> list[Endpoint]:
    """One endpoint per pod."""
    return [Endpoint(pod, 0, 8000) for pod in found]


@pytest.mark.parametrize(
    ("mode", "revisions", "wanted"),
    [
        ("max-role", {"old": (4, 2), "new": (1, 1)}, {"old": 0.8, "new": 0.2}),
        ("sum", {"old": (4, 2), "new": (1, 1)}, {"old": 0.75, "new": 0.25}),
        # Decode is the larger role here: published example of the llm-d router.
        ("max-role", {"a": (2, 9), "b": (1, 1)}, {"a": 0.9, "b": 0.1}),
        ("sum", {"a": (2, 9), "b": (1, 1)}, {"a": 11 / 13, "b": 2 / 13}),
        # A revision without a required role serves nobody, and does not choose the counted role either.
        ("max-role", {"old": (4, 2), "new": (9, 0)}, {"old": 1.0, "new": 0.0}),
        ("sum", {"old": (0, 2), "new": (9, 0)}, {"old": 0.0, "new": 0.0}),
        # Equal totals: the first required role counts.
        ("max-role", {"a": (3, 1), "b": (1, 3)}, {"a": 0.75, "b": 0.25}),
        ("disabled", {"old": (4, 2)}, {}),
    ],
)
def test_shares(mode: str, revisions: dict[str, tuple[int, int]], wanted: dict[str, float]) -> None:
    assert screener(mode).shares(pods(**revisions)) == pytest.approx(wanted)


def test_counted_are_ready_pods_of_the_scope_and_nothing_else() -> None:
    counted = revision_pods("old", 1, 1, 252)
    waiting = pod_document("w", "127.252.1.9", "prefill", "old", ready=False)
    leaving = pod_document("l", "127.252.1.8", "prefill", "old")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    other = pod_document("o", "127.252.1.7", "prefill", "new", **{"disaggregatedset.x-k8s.io/name": "other"})
    unlabelled = pod_document("u", "127.252.1.6", "", "old")
    outside = pod_document("p", "127.252.1.5", "decode", "old", app="not-in-the-pool")
    found = [pod_of(one) for one in [*counted, waiting, leaving, other, unlabelled]]
    assert screener("sum").shares(found) == {"old": 1.0}
    assert screener("max-role", "decode").shares([*found, pod_of(outside)]) == {"old": 1.0}
    both = [*found, pod_of(outside), *pods(new=(1, 1))]
    assert screener("max-role", "decode").shares(both) == pytest.approx({"old": 2 / 3, "new": 1 / 3})


def test_a_strict_header_takes_the_place_of_the_draw() -> None:
    found = pods(old=(4, 2), new=(1, 1), broken=(2, 0))
    one, all_of_them = screener("max-role"), endpoints(found)
    shares = one.shares(found)
    for draw in (0.0, 0.5, 0.999):
        left, unmatched = one.screen(all_of_them, {"x-disagg-revision": "new"}, shares, draw)
        assert {e.pod.labels[REVISION.label] for e in left} == {"new"}
        assert len(left) == 2
        assert unmatched is None
    for revision in ("unknown", "broken"):
        assert one.screen(all_of_them, {"x-disagg-revision": revision}, shares, 0.5) == ([], "revision")


def test_nothing_complete_leaves_nothing_and_blames_no_header() -> None:
    found = pods(old=(4, 0), new=(0, 1))
    one = screener("sum")
    assert one.screen(endpoints(found), {}, one.shares(found), 0.5) == ([], None)
    assert one.screen(endpoints(found), {"x-disagg-revision": "new"}, one.shares(found), 0.5) == ([], None)


def test_without_gating_only_strict_headers_screen() -> None:
    found = pods(old=(4, 0), new=(0, 1))
    one = screener("disabled")
    assert len(one.screen(endpoints(found), {}, {}, 0.5)[0]) == 5
    left, _ = one.screen(endpoints(found), {"x-disagg-revision": "old"}, {}, 0.5)
    assert len(left) == 4


def test_a_preferred_label_is_stamped_and_screens_nothing() -> None:
    found = pods(old=(1, 1))
    one = screener("sum")
    left, _ = one.screen(endpoints(found), {"x-disagg-slice": "7"}, one.shares(found), 0.5)
    assert len(left) == 2
    labelled = pod_of(pod_document("s", "127.252.1.9", "decode", "old", **{SLICE.label: "1"}))
    assert one.stamps(labelled) == {"x-disagg-revision": "old", "x-disagg-slice": "1"}
    assert one.stamps(found[0]) == {"x-disagg-revision": "old"}


COUNTS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]), st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=4
)


@given(COUNTS, st.sampled_from(["sum", "max-role"]), st.floats(0, 1, exclude_max=True))
def test_a_draw_keeps_to_one_complete_revision(
    counts: dict[str, tuple[int, int]], mode: str, draw: float
) -> None:
    found = pods(**counts)
    one = screener(mode)
    shares = one.shares(found)
    complete = {name for name, (prefill, decode) in counts.items() if prefill and decode}
    assert {name for name, share in shares.items() if share > 0} == complete
    assert sum(shares.values()) == pytest.approx(1.0 if complete else 0.0)
    assert shares.keys() == {name for name, both in counts.items() if any(both)}
    left, unmatched = one.screen(endpoints(found), {}, shares, draw)
    assert unmatched is None
    drawn = {e.pod.labels[REVISION.label] for e in left}
    assert len(drawn) == bool(complete)
    assert drawn <= complete
    for name in drawn:  # all of the revision, both roles
        assert Counter(e.pod.labels["llm-d.ai/role"] for e in left) == Counter(
            prefill=counts[name][0], decode=counts[name][1]
        )


@given(COUNTS, st.sampled_from(["sum", "max-role"]), st.integers(0, 2**32))
def test_draws_follow_the_shares(counts: dict[str, tuple[int, int]], mode: str, seed: int) -> None:
    found = pods(**counts)
    one, rng = screener(mode), Random(seed)
    shares = one.shares(found)
    everywhere = endpoints(found)
    drawn: Counter[str] = Counter()
    for _ in range(300):
        left, _ = one.screen(everywhere, {}, shares, rng.random())
        drawn.update({e.pod.labels[REVISION.label] for e in left})
    for revision, share in shares.items():
        # Five standard deviations and one draw: about one false alarm in a million.
        assert abs(drawn[revision] - 300 * share) <= 5 * (300 * share * (1 - share)) ** 0.5 + 1


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("", [{}, {"a": "b"}], []),
        ("a=b", [{"a": "b"}], [{}, {"a": "c"}]),
        ("a==b,c!=d", [{"a": "b"}, {"a": "b", "c": "e"}], [{"a": "b", "c": "d"}]),
        ("a in (b, c)", [{"a": "b"}, {"a": "c"}], [{"a": "d"}, {}]),
        ("a notin (b,c), d", [{"d": ""}], [{"d": "", "a": "b"}, {}]),
        ("!a", [{}], [{"a": ""}]),
    ],
)
def test_selectors(text: str, matching: list[dict[str, str]], others: list[dict[str, str]]) -> None:
    selector = parse_selector(text)
    assert all(selector.matches(labels) for labels in matching)
    assert not any(selector.matches(labels) for labels in others)


@pytest.mark.parametrize("text", ["a ~ b", "a=b=c", "a in b", ",", "a=b,"])
def test_text_that_is_no_selector(text: str) -> None:
    with pytest.raises(ValueError, match="unable to parse"):
        parse_selector(text)


def test_selector_objects() -> None:
    expressions = [
        {"key": "a", "operator": "In", "values": ["b"]},
        {"key": "c", "operator": "DoesNotExist"},
    ]
    selector = from_object({"matchLabels": {"x": "y"}, "matchExpressions": expressions})
    assert selector.matches({"a": "b", "x": "y"})
    assert not selector.matches({"a": "b", "x": "y", "c": ""})
    assert from_object({}) == Selector()
    with pytest.raises(ValueError, match="operator"):
        from_object({"matchExpressions": [{"key": "a", "operator": "In"}]})
