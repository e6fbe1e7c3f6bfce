"""The verdict over all prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, TypeAlias

from policy.chance import bootstrap_lower
from policy.figures import percent, whole
from policy.parity.answers import Answer, disagreement
from policy.rollout.wording import count

Verdict: TypeAlias = Literal["ok", "red", "garbage", "not-evaluable"]
Reference: TypeAlias = Literal["direct", "golden", "none"]
# Sentence and next action by what there was to compare with.
_NOTHING_TO_COMPARE_WITH: dict[Reference, tuple[str, str]] = {
    "direct": (
        "No decode pod answered when it was asked directly.",
        "Let workers reach the decode pods, or compare with golden outputs.",
    ),
    "golden": (
        "No verified golden outputs of this model and these prompts are there to compare with.",
        "Have parity of a revision that is known to be good probed, and record its answers as golden outputs; then "
        "probe again.",
    ),
    "none": (
        "There is nothing to compare with.",
        "Let a decode pod be reached directly (reference direct), or record golden outputs (reference golden).",
    ),
}


@dataclass(frozen=True, slots=True)
class PromptEvidence:
    """Answers to one prompt: of the path under test and of the reference, each as often as it was asked."""

    prompt: str
    path: tuple[Answer, ...]
    reference: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class ParityRule:
    """What is asked for.

    `margin` is the disagreement beyond the reference's own that is allowed. `collapse` is by how many nats per
    token answers may be less likely than the reference's. `most_jitter` is the disagreement of the reference with
    itself above which nothing can be told. `least_tokens` is the mean length that answers need.
    """

    margin: float = 0.05
    collapse: float = 1.0
    most_jitter: float = 0.25
    minimum_prompts: int = 20
    least_tokens: int = 16
    level: float = 0.99
    resamples: int = 2000


@dataclass(frozen=True, slots=True)
class ParityVerdict:
    """The verdict with its numbers; those that could not be formed are None.

    `reason` is stable and kebab-case. `path` is the mean disagreement of path and reference, `jitter` that of the
    reference with itself, `bound` the lower bound of their difference. `drop` is by how much the path's tokens are
    less likely, in nats. `worst` are the prompts that disagree most, at most five.
    """

    verdict: Verdict
    reason: str
    sentence: str
    next_action: str
    prompts: int
    unproved: int
    reference: Reference
    margin: float
    path: float | None = None
    jitter: float | None = None
    difference: float | None = None
    bound: float | None = None
    drop: float | None = None
    worst: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class _Prompt:
    name: str
    path: float
    jitter: float
    drop: float | None
    tokens: float


def judge_parity(
    evidence: Sequence[PromptEvidence], *, reference: Reference, seed: int, rule: ParityRule | None = None
) -> ParityVerdict:
    """Ok, red, garbage or not evaluable.

    Only answers of which disaggregation is proved count. Golden outputs have the same text asked again and again, so an
    answer without proof may have left its KV for the next one, whose proof is then none: there a prompt counts only
    where all its answers are proved. Red: the one-sided bound (99 % by default, bootstrap over
    prompts) of (disagreement with the reference - disagreement of the reference with itself) is beyond the margin.
    Garbage: the bound of the drop in log-probability is beyond `collapse`. Not evaluable: no reference, too few
    prompts, disaggregation not proved, jitter not measured or too large, answers too short, or a difference beyond
    the margin that so few prompts do not make certain.
    """
    rule = rule or ParityRule()
    proved = [replace(each, path=_proved(each.path, reference)) for each in evidence]
    usable = [each for each in proved if each.path and len(each.reference) > 1]
    unproved = sum(not each.path for each in proved)
    blank = ParityVerdict("not-evaluable", "", "", "", len(usable), unproved, reference, rule.margin)
    lacking = _lacking(proved, usable, blank, rule)
    if lacking is not None:
        return lacking
    return _weigh([_measure(each) for each in usable], blank, rule, seed)


def _proved(answers: tuple[Answer, ...], reference: Reference) -> tuple[Answer, ...]:
    found = tuple(each for each in answers if each.disaggregated)
    return () if reference == "golden" and len(found) < len(answers) else found


def _lacking(
    proved: Sequence[PromptEvidence], usable: Sequence[PromptEvidence], blank: ParityVerdict, rule: ParityRule
) -> ParityVerdict | None:
    """Why there is nothing to weigh."""
    need = rule.minimum_prompts
    if blank.reference == "none" or not any(each.reference for each in proved):
        return _no(blank, "no-reference", *_NOTHING_TO_COMPARE_WITH[blank.reference])
    if len(usable) >= need:
        return None
    if len(proved) < need:
        sentence = f"{whole(len(proved))} of {count(need, 'prompt')} that a verdict needs."
        return _no(blank, "too-few-prompts", sentence, "Send more prompts.")
    if sum(bool(each.path) for each in proved) < need:
        golden = blank.reference == "golden"
        have = "answers not proved" if golden else "no answer proved"
        sentence = f"Of {count(len(proved), 'prompt')} {blank.unproved} have {have} to be disaggregated."
        action = "Find out why: prompts under the decider's threshold, cached prompts, or failed loads."
        if golden:
            action += " Where cache_salt is ignored, compare with reference direct."
        return _no(blank, "disaggregation-not-proved", sentence, action)
    return _no(
        blank,
        "jitter-not-measured",
        "The reference answered too few prompts twice, so its own jitter is not known.",
        "Ask the reference at least twice for each prompt.",
    )


def _measure(evidence: PromptEvidence) -> _Prompt:
    crossed = [disagreement(a, b) for a in evidence.path for b in evidence.reference]
    within = [disagreement(a, b) for a, b in combinations(evidence.reference, 2)]
    ours, theirs = _likelihood(evidence.path), _likelihood(evidence.reference)
    drop = theirs - ours if ours is not None and theirs is not None else None
    tokens = sum(len(answer.tokens) for answer in evidence.reference) / len(evidence.reference)
    return _Prompt(evidence.prompt, _mean(crossed), _mean(within), drop, tokens)


def _weigh(prompts: Sequence[_Prompt], blank: ParityVerdict, rule: ParityRule, seed: int) -> ParityVerdict:
    excess = [each.path - each.jitter for each in prompts]
    bound = bootstrap_lower(excess, level=rule.level, resamples=rule.resamples, seed=seed)
    drops = [each.drop for each in prompts if each.drop is not None]
    ranked = sorted(
        zip(excess, (each.name for each in prompts), strict=True), key=lambda pair: (-pair[0], pair[1])
    )
    numbers = replace(
        blank,
        path=_mean([each.path for each in prompts]),
        jitter=_mean([each.jitter for each in prompts]),
        difference=_mean(excess),
        bound=bound,
        drop=_mean(drops) if drops else None,
        worst=tuple((name, value) for value, name in ranked[:5] if value > 0),
    )
    # A bound is not above its mean, so most of the time there is none to compute.
    if len(drops) >= rule.minimum_prompts and _mean(drops) > rule.collapse:
        collapse = bootstrap_lower(drops, level=rule.level, resamples=rule.resamples, seed=seed)
        if collapse > rule.collapse:
            sentence = f"Tokens are {numbers.drop:.1f} nats less likely than the reference's: the answers are garbage."
            return replace(
                numbers,
                verdict="garbage",
                reason="garbage",
                sentence=sentence,
                next_action="Abort, and keep the pair apart.",
            )
    if _mean([each.tokens for each in prompts]) < rule.least_tokens:
        sentence = f"The reference's answers have fewer than {rule.least_tokens} tokens on average."
        return _no(numbers, "answers-too-short", sentence, "Use prompts with longer answers.")
    return _decided(numbers, rule)


def _decided(numbers: ParityVerdict, rule: ParityRule) -> ParityVerdict:
    path, jitter = numbers.path or 0.0, numbers.jitter or 0.0
    difference, bound = numbers.difference or 0.0, numbers.bound or 0.0
    if jitter > rule.most_jitter:
        sentence = f"The reference disagrees with itself by {percent(jitter)}: nothing can be told."
        return _no(
            numbers, "jitter-too-large", sentence, "Ask with temperature 0, and the reference without load."
        )
    told = (
        f"The path disagrees with the reference by {percent(path)} over {count(numbers.prompts, 'prompt')}, the "
        f"reference with itself by {percent(jitter)}."
    )
    allowed = percent(rule.margin)
    if bound > rule.margin:
        sure = f"At {percent(rule.level)} certainty the path adds {percent(bound)} or more; allowed is {allowed}."
        action = "Abort; look whether it follows one pair, one pod or the revision."
        return replace(
            numbers, verdict="red", reason="beyond-margin", sentence=f"{told} {sure}", next_action=action
        )
    if difference > rule.margin:
        sentence = f"{told} That is more than the allowed {allowed}, but may be chance."
        return _no(numbers, "undecided", sentence, "Send more prompts, or each more often.")
    sentence = f"{told} Allowed is {allowed} more."
    return replace(
        numbers, verdict="ok", reason="within-margin", sentence=sentence, next_action="Nothing to do."
    )


def _no(numbers: ParityVerdict, reason: str, sentence: str, action: str) -> ParityVerdict:
    return replace(numbers, verdict="not-evaluable", reason=reason, sentence=sentence, next_action=action)


def _likelihood(answers: Sequence[Answer]) -> float | None:
    means = [mean for answer in answers if (mean := answer.mean_logprob) is not None]
    return _mean(means) if means else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
