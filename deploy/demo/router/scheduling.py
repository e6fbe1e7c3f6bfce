"""Profiles and their handlers: which endpoint decodes, and which one prefills, if any.

Load is what this router knows itself (its own requests in flight) plus what an endpoint's metrics page said last.
The length of a prompt is estimated as characters / 4, and nothing is taken for cached: this router keeps no prefix
index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from deploy.demo.router.fleet import Endpoint

CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Ask:
    """What a decision is made from: lower-case headers, model and length of the prompt in tokens (an estimate)."""

    headers: Mapping[str, str]
    model: str
    prompt_tokens: int


class Load(Protocol):
    """Load of an endpoint as scorers see it."""

    def queue(self, endpoint: Endpoint) -> float:
        """Requests ahead of a new one."""

    def kv_usage(self, endpoint: Endpoint) -> float:
        """Share of the KV cache in use, 0 to 1; 0 where no fresh metrics are known."""


@dataclass(frozen=True)
class LabelFilter:
    """Keeps the endpoints whose pod labels fit."""

    name: str
    type: str
    fits: Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True)
class Scorer:
    """Gives each endpoint a score between 0 and 1."""

    name: str
    type: str
    scores: Callable[[Ask, Sequence[Endpoint], Load], list[float]]


@dataclass(frozen=True)
class Picker:
    """Takes one endpoint: "max-score-picker", "random-picker" or "weighted-random-picker"."""

    name: str
    type: str

    def pick(self, endpoints: Sequence[Endpoint], scores: Sequence[float], rng: Random) -> Endpoint:
        """One of the endpoints; equal best scores are settled at random."""
        if self.type == "max-score-picker":
            best = max(scores)
            return rng.choice([e for e, score in zip(endpoints, scores, strict=True) if score == best])
        if self.type == "weighted-random-picker" and (total := sum(max(score, 0.0) for score in scores)) > 0:
            point = rng.random() * total
            for endpoint, score in zip(endpoints, scores, strict=True):
                point -= max(score, 0.0)
                if point < 0:
                    return endpoint
        return rng.choice(list(endpoints))


@dataclass(frozen=True)
class Profile:
    """Filters, weighted scorers and one picker."""

    name: str
    filters: tuple[LabelFilter, ...]
    scorers: tuple[tuple[Scorer, float], ...]
    picker: Picker

    def run(self, ask: Ask, endpoints: Sequence[Endpoint], load: Load, rng: Random) -> Endpoint | None:
        """The endpoint of this profile; None when the filters leave none."""
        left = [e for e in endpoints if all(one.fits(e.pod.labels) for one in self.filters)]
        if not left:
            return None
        totals = [0.0] * len(left)
        for scorer, weight in self.scorers:
            for index, score in enumerate(scorer.scores(ask, left, load)):
                totals[index] += weight * score
        return self.picker.pick(left, totals, rng)


@dataclass(frozen=True)
class PrefixDecider:
    """prefix-based-pd-decider: prefill elsewhere when the uncached part of the prompt is long enough."""

    non_cached_tokens: int
    prompt_tokens: int

    def __call__(self, ask: Ask) -> bool:
        """0 non-cached tokens = never. The whole prompt counts as not cached."""
        wanted = max(self.non_cached_tokens, self.prompt_tokens)
        return self.non_cached_tokens > 0 and ask.prompt_tokens >= wanted


def always(ask: Ask) -> bool:
    """always-disagg-pd-decider."""
    return True


@dataclass(frozen=True)
class Decision:
    """What a handler decided. `kind` is the decision type of the disaggregation handler, None with a single profile."""

    decode: Endpoint
    prefill: Endpoint | None = None
    kind: str | None = None


@dataclass(frozen=True)
class SingleHandler:
    """single-profile-handler: one profile, one endpoint."""

    name: str
    profile: Profile

    def decide(self, ask: Ask, endpoints: Sequence[Endpoint], load: Load, rng: Random) -> Decision | None:
        """The decision; None when no endpoint is left."""
        chosen = self.profile.run(ask, endpoints, load, rng)
        return None if chosen is None else Decision(chosen)


@dataclass(frozen=True)
class DisaggHandler:
    """disagg-profile-handler: a decode endpoint, and a prefill endpoint where the decider says so.

    decode-first asks the decider after decode is picked; prefill-first always runs the prefill profile first. A prefill
    profile that finds nothing leaves the request decode-only, and it is counted so.
    """

    name: str
    decode: Profile | None
    prefill: Profile | None
    decider: Callable[[Ask], bool] | None
    prefill_first: bool = False

    def decide(self, ask: Ask, endpoints: Sequence[Endpoint], load: Load, rng: Random) -> Decision | None:
        """The decision; None when no decode endpoint is left or the decode profile does not exist."""
        if self.decode is None:
            return None
        wanted = self.prefill_first or (self.decider is not None and self.decider(ask))
        early = self.prefill.run(ask, endpoints, load, rng) if self.prefill and self.prefill_first else None
        decode = self.decode.run(ask, endpoints, load, rng)
        if decode is None:
            return None
        prefill = early
        if self.prefill and wanted and not self.prefill_first:
            prefill = self.prefill.run(ask, endpoints, load, rng)
        return Decision(decode, prefill, "prefill-decode" if prefill else "decode-only")


Handler = SingleHandler | DisaggHandler


def queue_scores(ask: Ask, endpoints: Sequence[Endpoint], load: Load) -> list[float]:
    """queue-scorer: 1 for the shortest queue, 0 for the longest, in between by length; all 1 when they are equal."""
    lengths = [load.queue(endpoint) for endpoint in endpoints]
    low, high = min(lengths), max(lengths)
    return [1.0 if high == low else (high - length) / (high - low) for length in lengths]


def kv_scores(ask: Ask, endpoints: Sequence[Endpoint], load: Load) -> list[float]:
    """kv-cache-utilization-scorer: the free share of the KV cache."""
    return [1.0 - load.kv_usage(endpoint) for endpoint in endpoints]


def label_scores(header: str, label: str) -> Callable[[Ask, Sequence[Endpoint], Load], list[float]]:
    """header-label-affinity-scorer: 1 where the pod's label equals the request's header, else 0."""

    def scores(ask: Ask, endpoints: Sequence[Endpoint], load: Load) -> list[float]:
        wanted = ask.headers.get(header, "")
        return [float(bool(wanted) and e.pod.labels.get(label) == wanted) for e in endpoints]

    return scores
