"""When which probe is sent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from policy.chance import SplitMix64
from policy.probes.prompts import Prompt, fresh_salts

# The chance that every group of a series serves at least once, if the router picks evenly.
COVERAGE = 0.99


@dataclass(frozen=True, slots=True)
class Group:
    """One group that has to serve. `id` is the name of its leader pod."""

    id: str
    role: str
    revision: str


@dataclass(frozen=True, slots=True)
class PlannedProbe:
    """One probe, `at_s` seconds after the start, pinned to a revision. Warm-up results are thrown away."""

    number: int
    at_s: float
    revision: str
    prompt: str
    salt: str
    warmup: bool


@dataclass(frozen=True, slots=True)
class Schedule:
    """All probes in the order of sending."""

    probes: tuple[PlannedProbe, ...]
    duration_s: float

    @property
    def counted(self) -> int:
        """Probes that are no warm-up."""
        return sum(not probe.warmup for probe in self.probes)


def plan_probes(
    groups: Sequence[Group], prompts: Sequence[Prompt], *, warmup: int, cap_per_second: float, seed: int
) -> Schedule:
    """A series for every revision that the groups belong to, the revisions in turn.

    First `warmup` probes for each revision, then as many as every prompt once and `COVERAGE` need: a probe can be
    pinned to a revision, not to a group, so covering all groups is drawing until every coupon is there. Never more
    than `cap_per_second` are sent. Raises ValueError without groups or prompts, or for numbers that make no series.
    """
    if not groups or not prompts:
        raise ValueError("probes need groups that serve, and prompts")
    if warmup < 0 or not (cap_per_second > 0 and math.isfinite(cap_per_second)):
        raise ValueError(f"{warmup} warm-up probes at {cap_per_second} per second make no series")
    revisions = sorted({group.revision for group in groups})
    needed = {revision: max(len(prompts), draws_to_cover(groups, revision)) for revision in revisions}
    stream, salts = SplitMix64(seed), fresh_salts(seed=seed)
    turns = _turns(dict.fromkeys(revisions, warmup)), _turns(needed)
    probes = []
    for warm, turn in zip((True, False), turns, strict=True):
        decks = {revision: _Deck(prompts, stream.fork(place)) for place, revision in enumerate(revisions)}
        probes += [
            PlannedProbe(0, 0.0, revision, decks[revision].next().id, next(salts), warm) for revision in turn
        ]
    gap = 1.0 / cap_per_second
    timed = tuple(
        PlannedProbe(number, number * gap, probe.revision, probe.prompt, probe.salt, probe.warmup)
        for number, probe in enumerate(probes)
    )
    return Schedule(timed, timed[-1].at_s)


def draws_to_cover(groups: Sequence[Group], revision: str, *, certainty: float = COVERAGE) -> int:
    """How many requests reach every group of a revision in every role, with this chance, if picks are even.

    n groups miss one of themselves after k requests with a chance of at most n·exp(-k/n); the roles and revisions
    of the series share what may go wrong.
    """
    counts = Counter((group.revision, group.role) for group in groups)
    allowed = (1.0 - certainty) / len(counts)
    return max(
        (
            1 if size == 1 else math.ceil(size * math.log(size / allowed))
            for (owner, _), size in counts.items()
            if owner == revision
        ),
        default=0,
    )


class _Deck:
    """Prompts in an order of chance, every one once before any comes again."""

    def __init__(self, prompts: Sequence[Prompt], stream: SplitMix64) -> None:
        self._prompts, self._stream = prompts, stream
        self._left: list[Prompt] = []

    def next(self) -> Prompt:
        if not self._left:
            self._left = list(self._prompts)
            self._stream.shuffle(self._left)
        return self._left.pop()


def _turns(needed: dict[str, int]) -> list[str]:
    """Revisions in turn until each had as many turns as it needs."""
    return [
        revision for turn in range(max(needed.values())) for revision, count in needed.items() if turn < count
    ]
