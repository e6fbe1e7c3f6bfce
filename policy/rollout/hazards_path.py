"""Hazards of the request path: whether an upgrade in place can make requests meet two revisions.

In place only where the live router keeps every request inside one revision, or where every pair of two revisions
fits (DESIGN 4.2). Otherwise the new revision belongs into a pool of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from policy.rollout.hazard import Hazard
from policy.rollout.wording import listed

# proved: the live router was seen to do it. configured: its configuration says so. absent: it does not. unknown:
# the configuration of the running router is not known.
Screening: TypeAlias = Literal["proved", "configured", "absent", "unknown"]
MAY_MEET = ("compatible", "slow")


@dataclass(frozen=True, slots=True)
class CrossPair:
    """Prefill of one side and decode of the other (`old`, `new`), with the transfer verdict."""

    prefill: str
    decode: str
    outcome: str
    sentence: str


@dataclass(frozen=True, slots=True)
class PathExam:
    """What was seen of the paths that lead to a set.

    `pools` select its pods; without one there is no path to look at. `screening` is that of the weakest pool, `why`
    a sentence about it. `guard` says whether clients can pin a revision. `probed`: somebody has said how the pools
    are reached, so that probes can be sent. `unread` are kinds that this account may not list. `metric_source`:
    the cluster has one. `unversioned` are roles whose engines will not say which version they are. `without_golden`
    are pools whose parity compares with golden outputs that nobody has recorded; `other_weights` are engine arguments
    that change what is answered, where a pool compares with golden outputs.
    """

    pools: tuple[str, ...]
    screening: Screening = "unknown"
    why: str = ""
    pairs: tuple[CrossPair, ...] = ()
    guard: str = "cannot-tell"
    guard_sentence: str = ""
    probed: bool = False
    unread: tuple[str, ...] = ()
    metric_source: bool = True
    unversioned: tuple[str, ...] = ()
    without_golden: tuple[str, ...] = ()
    other_weights: tuple[str, ...] = ()


def path_hazards(exam: PathExam | None) -> Iterator[Hazard]:
    """All hazards of the path of a change that rolls out."""
    yield from _numbers(exam)
    if exam is None or not exam.pools:
        yield _not_examined(exam)
        return
    yield from _mixing(exam)
    if exam.guard == "open":
        yield Hazard(
            "clients-can-pin",
            "warn",
            f"Clients can choose the revision that serves them. {exam.guard_sentence}",
            "Have the gateway remove the revision header from requests of clients.",
            {"pools": list(exam.pools)},
        )
    if not exam.probed:
        yield Hazard(
            "path-not-probed",
            "warn",
            f"No probe can be sent through {listed(exam.pools)}: nobody has said how it is reached, its router has "
            "no strict revision header, or its pods are not prefill and decode. At holds and at the end ready pods are "
            "the only proof.",
            "Set probe_url and model of the pool, have the router screen with a strict header, and check again.",
            {"pools": list(exam.pools)},
        )
    yield from _golden(exam)


def _golden(exam: PathExam) -> Iterator[Hazard]:
    """Whether what parity compares with is there, and is an answer of these engines."""
    if exam.other_weights:
        yield Hazard(
            "golden-of-other-weights",
            "warn",
            "Parity compares with golden outputs, which say what the old engines said, and of the new ones "
            f"{listed(exam.other_weights)} is another: other answers are to be expected, and red holds the upgrade.",
            "Set reference of the pool to direct, or to none, for this upgrade, and check the plan again.",
            {"arguments": list(exam.other_weights)},
        )
    if exam.without_golden:
        yield Hazard(
            "golden-not-recorded",
            "warn",
            f"Parity of {listed(exam.without_golden)} compares with golden outputs, and nobody vouches for any of this "
            "model and these prompts: it will say nothing, and the first look at the path will hold the upgrade.",
            "Have parity of the serving revision probed (kind parity, that revision), record the series as golden "
            "outputs (record-golden), and check the plan again.",
            {"pools": list(exam.without_golden)},
        )


def _numbers(exam: PathExam | None) -> Iterator[Hazard]:
    """Whether there are numbers for gates, and whether it is known what they mean."""
    if exam is not None and not exam.metric_source:
        yield Hazard(
            "no-metric-source",
            "warn",
            "The cluster has no metric source, so errors, times, KV transfers and headroom are no gates of this "
            "upgrade: a revision that answers probes and is slow, or fails clients, is not held.",
            "Give the address of the cluster's Prometheus and check the plan again, or acknowledge it.",
        )
    elif exam is not None and exam.unversioned:
        yield Hazard(
            "engine-version-unknown",
            "warn",
            f"Which version the engines of {listed(exam.unversioned)} will be is not known: gates whose metrics mean "
            "different things in different versions, such as failed KV transfers, will have no verdict and keep holds "
            "waiting.",
            "Use the engine's own image with a version tag, let workers ask the engines (reference direct of the "
            "pool), or leave those gates unrequired in the plan.",
            {"roles": list(exam.unversioned)},
        )


def _not_examined(exam: PathExam | None) -> Hazard:
    if exam is not None and exam.unread:
        why = f"this account may not list {listed(exam.unread)}"
    else:
        why = "no InferencePool selects these pods"
    return Hazard(
        "path-not-examined",
        "warn",
        f"How requests reach these pods is not known: {why}. Whether the router keeps a request inside one revision "
        "is not known either; ready pods are the only proof of this upgrade.",
        "Acknowledge it as the requester, or serve the set through an InferencePool whose router screens revisions.",
    )


def _mixing(exam: PathExam) -> Iterator[Hazard]:
    """Only what was seen, or what fits, lets two revisions serve side by side (DESIGN 4.2)."""
    if exam.screening == "proved":
        return
    configured = exam.screening == "configured"
    unseen = "The router's configuration keeps requests inside one revision, but nobody has seen it do so"
    bad = [pair for pair in exam.pairs if pair.outcome not in MAY_MEET]
    if exam.pairs and not bad:
        may = (
            f"{unseen}; were it not so, every pair"
            if configured
            else "The router may pair engines of both revisions, and every such pair"
        )
        yield Hazard(
            "revisions-may-meet",
            "info",
            f"{may} fits. {exam.why}",
            "Nothing to do.",
            {"pools": list(exam.pools)},
        )
        return
    first = bad[0] if bad else None
    told = f" Prefill {first.prefill} with decode {first.decode}: {first.sentence}" if first else ""
    facts = {"pools": list(exam.pools), "pairs": [[p.prefill, p.decode, p.outcome] for p in exam.pairs]}
    if configured:
        yield Hazard(
            "screening-not-proved",
            "block",
            f"{unseen}, and not every pair of two revisions is known to fit. {exam.why}{told}",
            "Set probe_url and model of the pool, and check again: a pinned probe proves it. Or give the new revision "
            "a pool of its own.",
            facts,
        )
        return
    yield Hazard(
        "mixed-pairs-possible",
        "block",
        f"The router may pair engines of the two revisions while both serve. {exam.why}{told}",
        "Add the rollout screener with all roles required to the router, or give the new revision a pool of its own.",
        facts,
    )
