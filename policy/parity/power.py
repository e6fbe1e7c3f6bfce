"""How often parity would be red: for a path that corrupts tokens, and for one that does not.

A simulation, judged by the real verdict. At each position the model prefers one token to the runner-up by a lead
that is exponential with a mean of 3 nats, so that one position in thirty is a tie within 0.1 nat. Each run of an
engine adds normal noise of `jitter` nats to every lead: where the lead turns negative, the runner-up comes out. A
corrupted token is the runner-up too, the mildest error there is. Log-probabilities are those of a choice between
the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log1p

from policy.chance import SplitMix64
from policy.parity.answers import Answer
from policy.parity.verdict import ParityRule, PromptEvidence, judge_parity

MEAN_LEAD = 3.0
# Draws are taken from tables of this length, at places that are drawn: enough for prompts of thousands of tokens.
_TABLE = 2**14


@dataclass(frozen=True, slots=True)
class Study:
    """What is simulated. `path_jitter` is the path's where it differs from the reference's.

    Without `logprobs` answers are tokens alone, as from an engine that gives nothing else.
    """

    prompts: int = 24
    tokens: int = 64
    jitter: float = 0.02
    path_jitter: float | None = None
    path_repetitions: int = 1
    reference_repetitions: int = 2
    runs: int = 200
    logprobs: bool = True
    rule: ParityRule = field(default_factory=ParityRule)


def power(corrupt_fraction: float, study: Study, *, seed: int) -> float:
    """The part of runs that are red or garbage, when each token of the path is corrupted with this chance."""
    if not 0.0 <= corrupt_fraction <= 1.0:
        raise ValueError(f"{corrupt_fraction} is no part of tokens")
    simulation = _Simulation(study, corrupt_fraction, seed)
    red = sum(simulation.verdict() in ("red", "garbage") for _ in range(study.runs))
    return red / study.runs


def false_red_rate(study: Study, *, seed: int) -> float:
    """The part of runs that are red or garbage although nothing is corrupted."""
    return power(0.0, study, seed=seed)


class _Simulation:
    def __init__(self, study: Study, corrupt_fraction: float, seed: int) -> None:
        self.study, self.corrupt, self.seed = study, corrupt_fraction, seed
        self.stream = SplitMix64(seed)
        normal = SplitMix64(seed).fork(1)
        self.noise = [normal.gauss() for _ in range(_TABLE)]
        self.leads = [-MEAN_LEAD * log1p(-normal.unit()) for _ in range(_TABLE)]

    def verdict(self) -> str:
        """The verdict over one set of prompts and answers."""
        study = self.study
        loud = study.jitter if study.path_jitter is None else study.path_jitter
        evidence = []
        for number in range(study.prompts):
            leads = self._slice(self.leads)
            path = tuple(self._answer(leads, loud, self.corrupt) for _ in range(study.path_repetitions))
            direct = tuple(self._answer(leads, study.jitter, 0.0) for _ in range(study.reference_repetitions))
            evidence.append(PromptEvidence(f"p{number}", path, direct))
        return judge_parity(evidence, reference="direct", seed=self.seed, rule=study.rule).verdict

    def _answer(self, leads: Sequence[float], jitter: float, corrupt: float) -> Answer:
        seen = [lead + jitter * noise for lead, noise in zip(leads, self._slice(self.noise), strict=True)]
        if corrupt:
            unit = self.stream.unit
            seen = [-abs(lead) if unit() < corrupt else lead for lead in seen]
        tokens = tuple([int(lead < 0.0) for lead in seen])
        if not self.study.logprobs:
            return Answer(tokens, cut=True, disaggregated=True)
        logprobs = tuple([-log1p(exp(-abs(lead))) for lead in seen])
        return Answer(tokens, logprobs, cut=True, disaggregated=True)

    def _slice(self, table: Sequence[float]) -> Sequence[float]:
        start = self.stream.below(_TABLE)
        found = table[start : start + self.study.tokens]
        while len(found) < self.study.tokens:
            found = [*found, *table[: self.study.tokens - len(found)]]
        return found
