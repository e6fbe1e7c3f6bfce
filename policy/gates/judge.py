"""Judging gates. Nothing is green because nothing was seen: a missing, old or thin measurement is not evaluable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from policy.figures import percent, seconds, whole
from policy.gates.gate import Gate, Judgement, Measurement, Overall, Unit, Verdict
from policy.gates.versions import why_blind, why_hidden, why_not_comparable
from policy.rollout.wording import listed

Outcome: TypeAlias = tuple[Verdict, str, str]  # verdict, reason, sentence

# Clocks of two machines may differ this much before a sample from the future is called one.
CLOCK_DRIFT_S = 5.0
# Evidence that the path itself works. The others can all be good while every answer is garbage.
OF_THE_PATH = ("transfer", "output")

_NO_VALUE = {
    "no-traffic": ("no requests in the window", "Send probes, or wait for traffic."),
    "no-data": ("no data", "Check that the pods are scraped and that the metric source answers."),
    "not-exposed": (
        "this engine version does not expose it",
        "Use a gate that this engine version can answer.",
    ),
}


class _NotEvaluable(Exception):
    """Why a gate has no verdict: stable reason, sentence, next action."""

    def __init__(self, reason: str, sentence: str, next_action: str) -> None:
        super().__init__(reason)
        self.reason, self.sentence, self.next_action = reason, sentence, next_action


def judge_gate(gate: Gate, measurement: Measurement) -> Judgement:
    """Green, red or not evaluable, with a sentence and a next action.

    Green needs a fresh value over enough samples that is within the limit even at the worst that it may stand for.
    Red needs the same and a value that is beyond the limit even at the best, or a finding. Everything else is not
    evaluable: no traffic, no data, not exposed, stale, too few samples, a bound that could be either, a baseline
    with any of these, a metric whose meaning changed between the two versions.
    """
    value, limit = measurement.value, None
    try:
        _check(gate, measurement, "")
        if measurement.finding:
            return _judged(gate, measurement, ("red", "finding", measurement.finding), None)
        _check_samples(gate, measurement, "")
        least_limit, most_limit = _limits(gate, measurement)
        limit = least_limit if gate.comparison == "at-most" else most_limit
        verdict, reason = _compare(gate, measurement, least_limit, most_limit)
        if verdict == "green":
            _check_sight(gate, measurement)
    except _NotEvaluable as no:
        known = value if value is not None and math.isfinite(value) else None
        samples, age = measurement.samples, measurement.age_s
        return Judgement(
            gate, "not-evaluable", no.reason, no.sentence, no.next_action, known, limit, samples, age
        )
    return _judged(gate, measurement, (verdict, reason, _sentence(gate, measurement, limit)), limit)


def judge_gates(judgements: Sequence[Judgement]) -> Overall:
    """One red is red; else one required gate without a verdict is not evaluable; else green.

    Green also needs at least one required green gate that looks at the transfer or at the output: HTTP 200, times
    and free capacity alone prove nothing about the path.
    """
    required = [each for each in judgements if each.gate.required]
    red = [each for each in required if each.verdict == "red"]
    missing = [each for each in required if each.verdict == "not-evaluable"]
    advisory = tuple(
        each.gate.id for each in judgements if not each.gate.required and each.verdict != "green"
    )
    ids = {"red": tuple(each.gate.id for each in red), "missing": tuple(each.gate.id for each in missing)}
    if red:
        sentence = f"Red: {listed([each.gate.label for each in red])}. {red[0].sentence}"
        return Overall("red", sentence, red[0].next_action, advisory=advisory, **ids)
    if missing:
        sentence = f"No verdict: {listed([each.gate.label for each in missing])}. {missing[0].sentence}"
        return Overall("not-evaluable", sentence, missing[0].next_action, advisory=advisory, **ids)
    if not any(each.gate.evidence in OF_THE_PATH for each in required):
        sentence = "No gate looks at the transfer or at the output; answers with HTTP 200 prove nothing by themselves."
        action = "Require the gate of failed transfers, of probes or of parity."
        return Overall("not-evaluable", sentence, action, advisory=advisory, **ids)
    sentence = f"{len(required)} of {len(required)} required gates are green."
    return Overall("green", sentence, "Nothing to do.", advisory=advisory, **ids)


def _check(gate: Gate, measurement: Measurement, whose: str) -> None:
    """There is a value, and it is fresh. `whose` is empty, or names the baseline."""
    prefix, label = ("baseline-" if whose else ""), _label(gate, whose)
    hidden = why_hidden(measurement.engine, gate.metric, measurement.version)
    state = "not-exposed" if hidden else measurement.state
    if state != "value":
        cause, action = _NO_VALUE[state]
        raise _NotEvaluable(prefix + state, f"{label}: {hidden or measurement.note or cause}.", action)
    if measurement.value is None or not math.isfinite(measurement.value):
        action = "Check the query: it divides by nothing or meets an empty histogram."
        raise _NotEvaluable(prefix + "not-a-number", f"{label}: the value is no number.", action)
    if measurement.age_s is None or not math.isfinite(measurement.age_s):
        raise _NotEvaluable(
            prefix + "age-unknown", f"{label}: how old the value is is not known.", _NO_VALUE["no-data"][1]
        )
    if measurement.age_s < -CLOCK_DRIFT_S:
        sentence = f"{label}: the newest sample lies {seconds(-measurement.age_s)} in the future."
        raise _NotEvaluable(prefix + "clock-drift", sentence, "Set the clocks right.")
    if measurement.age_s > gate.maximum_sample_age_s:
        sentence = (
            f"{label}: the newest sample is {seconds(measurement.age_s)} old, at most "
            f"{seconds(gate.maximum_sample_age_s)} counts."
        )
        raise _NotEvaluable(prefix + "stale", sentence, "Measure again, or find out why no new samples come.")


def _check_samples(gate: Gate, measurement: Measurement, whose: str) -> None:
    if measurement.samples < gate.minimum_samples:
        sentence = (
            f"{_label(gate, whose)}: {whole(measurement.samples)} of {whole(gate.minimum_samples)} samples in "
            f"{seconds(gate.window_s)}."
        )
        action = "Send probes, or wait for traffic."
        raise _NotEvaluable("baseline-too-few-samples" if whose else "too-few-samples", sentence, action)


def _limits(gate: Gate, measurement: Measurement) -> tuple[float, float]:
    """The least and the most that the limit may be; they differ where the baseline is only a lower bound."""
    if not gate.relative:
        return gate.threshold, gate.threshold
    baseline = measurement.baseline
    if baseline is None:
        action = "Name a baseline revision that serves, or use an absolute threshold."
        raise _NotEvaluable("no-baseline", f"{gate.label}: there is no baseline to compare with.", action)
    whose = f"baseline {baseline.revision}".rstrip()
    _check(gate, baseline, whose)
    _check_samples(gate, baseline, whose)
    _check_meaning(gate, measurement, baseline)
    slack = gate.slack if gate.comparison == "at-most" else -gate.slack
    least = gate.threshold * (baseline.value or 0.0) + slack
    return least, math.inf if baseline.at_least else least


def _check_meaning(gate: Gate, measurement: Measurement, baseline: Measurement) -> None:
    apart = why_not_comparable(measurement.engine, gate.metric, measurement.version, baseline.version)
    if measurement.engine != baseline.engine:
        apart = f"one side runs {measurement.engine or 'an unknown engine'}, the other {baseline.engine or 'another'}"
    elif measurement.buckets and baseline.buckets and measurement.buckets != baseline.buckets:
        apart = "the two revisions use different histogram buckets"
    if apart:
        sentence = f"{gate.label}: not comparable with the baseline: {apart}."
        action = "Judge the new revision by an absolute threshold."
        raise _NotEvaluable("meaning-changed", sentence, action)


def _check_sight(gate: Gate, measurement: Measurement) -> None:
    blind = why_blind(measurement.engine, gate.metric, measurement.version)
    if blind:
        sentence = f"{gate.label}: a good value proves nothing here: {blind}."
        raise _NotEvaluable(
            "blind-version", sentence, "Rely on probes and parity, or upgrade the engine first."
        )


def _compare(
    gate: Gate, measurement: Measurement, least_limit: float, most_limit: float
) -> tuple[Verdict, str]:
    least = measurement.value or 0.0
    most = math.inf if measurement.at_least else least
    if gate.comparison == "at-most":
        good, bad = most <= least_limit, least > most_limit
    else:
        good, bad = least >= most_limit, most < least_limit
    if good or bad:
        return ("green", "within-limit") if good else ("red", "beyond-limit")
    sentence = f"{gate.label}: the value is only known to be at least {_figure(least, gate.unit)}"
    if not measurement.at_least:
        sentence = f"{gate.label}: the baseline is only known to be at least a value"
    action = "Use histogram buckets that reach further, or compare means."
    raise _NotEvaluable(
        "only-a-lower-bound", sentence + ", which can be on either side of the limit.", action
    )


def _judged(gate: Gate, measurement: Measurement, outcome: Outcome, limit: float | None) -> Judgement:
    verdict, reason, sentence = outcome
    action = "Nothing to do." if verdict == "green" else gate.when_red
    value, samples, age = measurement.value, measurement.samples, measurement.age_s
    return Judgement(gate, verdict, reason, sentence, action, value, limit, samples, age)


def _sentence(gate: Gate, measurement: Measurement, limit: float | None) -> str:
    of = f" of {measurement.revision}" if measurement.revision else ""
    value = ("at least " if measurement.at_least else "") + _figure(measurement.value or 0.0, gate.unit)
    bound = "at most" if gate.comparison == "at-most" else "at least"
    base = measurement.baseline
    compared = ""
    if gate.relative and base is not None:
        compared = f" ({base.revision or 'the baseline'} has {_figure(base.value or 0.0, gate.unit)})"
    return (
        f"{gate.label}{of} is {value}; allowed is {bound} {_figure(limit or 0.0, gate.unit)}{compared}. "
        f"{whole(measurement.samples)} samples, {seconds(max(0.0, measurement.age_s or 0.0))} old."
    )


def _label(gate: Gate, whose: str) -> str:
    return f"{gate.label}, {whose}" if whose else gate.label


def _figure(value: float, unit: Unit) -> str:
    return {"ratio": percent, "seconds": seconds, "count": whole}[unit](value)
