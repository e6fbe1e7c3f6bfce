"""Whether answers can be kept as golden outputs: what later answers to the same prompts are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from policy.figures import percent
from policy.parity.answers import Answer, disagreement
from policy.parity.verdict import ParityRule
from policy.rollout.wording import count

AT_LEAST_TWICE = 2  # with one answer to a prompt the jitter of the golden outputs would not be known


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why answers cannot be golden outputs. `reason` is stable and kebab-case."""

    reason: str
    sentence: str
    next_action: str


def judge_golden(
    answers: Mapping[str, Sequence[Answer]], *, rule: ParityRule | None = None
) -> tuple[dict[str, tuple[Answer, ...]], Unfit | None]:
    """Prompt → its answers, of the prompts with at least two; and why they are no reference, if they are none.

    The rule is that of parity: what could not be compared with later must not be kept. Every answer must be proved
    to be disaggregated: one that decode computed alone says nothing about the path that it would stand for.
    """
    rule = rule or ParityRule()
    whole = {prompt: tuple(each) for prompt, each in answers.items() if len(each) >= AT_LEAST_TWICE}
    return whole, _unfit(answers, whole, rule)


def _unfit(
    answers: Mapping[str, Sequence[Answer]], whole: Mapping[str, Sequence[Answer]], rule: ParityRule
) -> Unfit | None:
    alone = sum(not answer.disaggregated for each in answers.values() for answer in each)
    if alone:
        return Unfit(
            "not-disaggregated",
            f"Of {count(alone, 'answer')} it is not proved that prefill and decode were two pods.",
            "Find out why: prompts under the decider's threshold, cached prompts, or failed loads.",
        )
    if len(whole) < rule.minimum_prompts:
        return Unfit(
            "too-few-answers",
            f"{count(len(whole), 'prompt')} of {rule.minimum_prompts} that are needed have two answers of the path.",
            "Set reference of the pool to golden and have parity of one revision probed again.",
        )
    tokens = sum(len(answer.tokens) for each in whole.values() for answer in each)
    if tokens / sum(len(each) for each in whole.values()) < rule.least_tokens:
        return Unfit(
            "answers-too-short",
            f"The answers have fewer than {rule.least_tokens} tokens on average.",
            "Find out why the model ends so early: prompts of probes ask for long answers.",
        )
    within = [disagreement(a, b) for each in whole.values() for a, b in combinations(each, 2)]
    jitter = sum(within) / len(within)
    if jitter > rule.most_jitter:
        return Unfit(
            "jitter-too-large",
            f"The answers disagree with each other by {percent(jitter)}: nothing could be told from them.",
            "Probe again without load; if it stays, find out why greedy answers differ.",
        )
    return None
