"""What planned shares are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from policy.shares.facts import Reason

# prefilled: a prefill pod, then a decode pod. decode-only: no prefill pod. unsplit: one of these two, not known
# which. refused: no pod. unknown: nobody can say which revision.
EdgeKind: TypeAlias = Literal["prefilled", "decode-only", "unsplit", "refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Edge:
    """A part of all requests. `revision` is empty where it stands for no revision."""

    pool: str
    revision: str
    kind: EdgeKind
    share: float
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class PlannedLane:
    """One revision behind one pool.

    `share` is its part of all requests, `at_most` the same plus what is not known. `drawn`: a rule says so; else
    the share is only what ready pods let one expect. `reasons` are there when the share is 0, the cause nearest to
    the gateway first.
    """

    pool: str
    revision: str
    share: float
    at_most: float
    drawn: bool
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Whether a request can be prefilled by the one revision and decoded by the other, and why."""

    prefill: tuple[str, str]
    decode: tuple[str, str]
    allowed: bool
    reason: Reason


@dataclass(frozen=True, slots=True)
class PlannedShares:
    """The plan. The shares of `edges` add up to 1, whatever is missing. Lanes and pairs are (pool, revision)."""

    edges: tuple[Edge, ...]
    lanes: tuple[PlannedLane, ...]
    pairs: tuple[Pair, ...]
    notes: tuple[Reason, ...]
