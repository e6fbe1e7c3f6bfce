"""Measured shares: what the router picked, joined to what the pods are.

The router counts one attempt per request, at the pod that it sends the request to: the decode pod. Prefill pods
have no attempts; how many requests skipped prefill is in its decision counter, for the pool as a whole. Counts of
a window may be fractions (Prometheus extrapolates); they are rounded.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from policy.proportions import clopper_pearson
from policy.shares.facts import DECODES
from policy.shares.lanes import EdgeKind

LEVEL = 0.99
# Values of decision_type of llm_d_epp_disagg_decision_total that use no prefill pod, and those that do.
SKIPPED = ("decode-only", "encode-decode")
PREFILLED = ("prefill-decode", "encode-prefill-decode")
_RANK = re.compile(r"-rank-[0-9]+$")


@dataclass(frozen=True, slots=True)
class PodPlace:
    """Where a pod belongs."""

    pool: str
    revision: str
    role: str


@dataclass(frozen=True, slots=True)
class MeasuredLane:
    """One revision behind one pool: `count` requests were sent to its decode pods.

    `share` of all with its exact 99 % interval. `prefilled` requests used its prefill pods (None: not counted per
    revision).
    """

    pool: str
    revision: str
    count: int
    share: float
    low: float
    high: float
    prefilled: int | None = None


@dataclass(frozen=True, slots=True)
class MeasuredEdge:
    """A part of all measured requests; kinds as in Edge. `count` is out of the total of MeasuredShares."""

    pool: str
    revision: str
    kind: EdgeKind
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class SkipShare:
    """Requests that used no prefill pod, out of all decisions, with the exact 99 % interval."""

    count: int
    decisions: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class MeasuredShares:
    """What was measured. Without requests there are no edges; else their shares add up to 1.

    `unmatched` are endpoints with their counts that belong to no known pod, `odd` pods that were sent requests
    though their role cannot decode.
    """

    total: int
    lanes: tuple[MeasuredLane, ...]
    edges: tuple[MeasuredEdge, ...]
    skipped: SkipShare | None
    unmatched: tuple[tuple[str, int], ...]
    odd: tuple[tuple[str, int], ...]


def measured_shares(
    attempts: Mapping[str, float],
    places: Mapping[str, PodPlace],
    *,
    decisions: Mapping[str, float] | None = None,
    prefilled: Mapping[str, float] | None = None,
) -> MeasuredShares:
    """Shares over a window.

    `attempts`: increase of scheduler attempts by endpoint (`<pod>` or `<pod>-rank-<i>`). `decisions`: increase of
    the router's decisions by type. `prefilled`: requests that prefill pods finished, by pod, where the engines
    count them. Raises ValueError for a count that is negative or not finite.
    """
    counts = _counted(attempts)
    known, unmatched = _joined(counts, places)
    lanes, odd = Counter[tuple[str, str]](), []
    for pod, count in sorted(known.items()):
        place = places[pod]
        if place.role in DECODES:
            lanes[place.pool, place.revision] += count
        else:
            odd.append((pod, count))
    for place in places.values():
        lanes[place.pool, place.revision] += 0
    total = sum(lanes.values()) + sum(count for _, count in (*unmatched, *odd))
    done, strangers = _prefilled_by_lane(prefilled, places)
    seen = tuple(_lane(key, count, total, done) for key, count in sorted(lanes.items()))
    return MeasuredShares(
        total=total,
        lanes=seen,
        edges=_edges(seen, total, _skips(decisions)) if total else (),
        skipped=_skips(decisions),
        unmatched=(*unmatched, *strangers),
        odd=tuple(odd),
    )


def _counted(values: Mapping[str, float]) -> dict[str, int]:
    for name, value in values.items():
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"{value} requests at {name}: a count is finite and not negative")
    return {name: round(value) for name, value in values.items()}


def _joined(
    counts: Mapping[str, int], places: Mapping[str, PodPlace]
) -> tuple[Counter[str], tuple[tuple[str, int], ...]]:
    known, unmatched = Counter[str](), []
    for endpoint, count in sorted(counts.items()):
        pod = endpoint if endpoint in places else _RANK.sub("", endpoint)
        if pod in places:
            known[pod] += count
        elif count:
            unmatched.append((endpoint, count))
    return known, tuple(unmatched)


def _prefilled_by_lane(
    prefilled: Mapping[str, float] | None, places: Mapping[str, PodPlace]
) -> tuple[dict[tuple[str, str], int] | None, tuple[tuple[str, int], ...]]:
    if prefilled is None:
        return None, ()
    known, strangers = _joined(_counted(prefilled), places)
    lanes = Counter[tuple[str, str]]()
    for pod, count in known.items():
        lanes[places[pod].pool, places[pod].revision] += count
    return dict(lanes), strangers


def _lane(
    key: tuple[str, str], count: int, total: int, done: dict[tuple[str, str], int] | None
) -> MeasuredLane:
    low, high = clopper_pearson(count, total, level=LEVEL)
    # Windows of two sources never end at the same moment: not more were prefilled than decoded.
    prefilled = None if done is None else min(count, done.get(key, 0))
    return MeasuredLane(*key, count, count / total if total else 0.0, low, high, prefilled)


def _skips(decisions: Mapping[str, float] | None) -> SkipShare | None:
    if decisions is None:
        return None
    counts = _counted(decisions)
    skipped = sum(counts.get(name, 0) for name in SKIPPED)
    asked = skipped + sum(counts.get(name, 0) for name in PREFILLED)
    low, high = clopper_pearson(skipped, asked, level=LEVEL)
    return SkipShare(skipped, asked, skipped / asked if asked else 0.0, low, high)


def _edges(lanes: tuple[MeasuredLane, ...], total: int, skips: SkipShare | None) -> tuple[MeasuredEdge, ...]:
    """Lanes, split where a split is known for the lane: by its own count, or because it is the only one."""
    edges: list[MeasuredEdge] = []
    busy = [lane for lane in lanes if lane.count]
    for lane in busy:
        prefilled = lane.prefilled
        if prefilled is None and skips is not None and skips.decisions and _one_for_all(busy, skips):
            prefilled = lane.count - round(lane.count * skips.share)
        parts: list[tuple[EdgeKind, int]] = [("unsplit", lane.count)]
        if prefilled is not None:
            parts = [("prefilled", prefilled), ("decode-only", lane.count - prefilled)]
        edges += [
            MeasuredEdge(lane.pool, lane.revision, kind, count, count / total)
            for kind, count in parts
            if count
        ]
    rest = total - sum(lane.count for lane in lanes)
    if rest:
        edges.append(MeasuredEdge("", "", "unknown", rest, rest / total))
    return tuple(edges)


def _one_for_all(busy: list[MeasuredLane], skips: SkipShare) -> bool:
    """The pool's decisions say it for each lane: there is one lane, or all requests went the same way."""
    return len(busy) == 1 or skips.count in (0, skips.decisions)
