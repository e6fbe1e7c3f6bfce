"""The verdict over a series of probes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from policy.probes.attribution import LEAST_IF_ALL_FAIL, Doubt, Sides, Sight, attribute
from policy.probes.facts import Disaggregation, Finding, ProbeResult, Surroundings
from policy.probes.outcome import disaggregation_of, outcome_of
from policy.probes.schedule import Group
from policy.probes.settings import settings_findings
from policy.rollout.wording import count, listed

Verdict: TypeAlias = Literal["green", "red", "not-evaluable"]
NOT_SEEN = "not seen"
LEAST_SUCCESS = 0.98
LEAST_PROVED = 0.9
MINIMUM_PROBES = 20


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often a group served in its role. `seen_by`: from answers, from its counters, or not at all."""

    group: Group
    served: int
    seen_by: Literal["answers", "counters", "not-seen"]


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """The verdict, and everything it rests on.

    `reason` is stable and kebab-case. `succeeded` of `judged` probes; `without_verdict` were turned away by flow
    control or their content was not looked at, `refused` were wrong themselves, `warmups` do not count. `served`
    says by probe number which revision answered, or "not seen"; `disaggregated` counts successes by how far
    disaggregation is proved.
    """

    verdict: Verdict
    reason: str
    sentence: str
    next_action: str
    succeeded: int
    judged: int
    without_verdict: int
    refused: int
    warmups: int
    coverage: tuple[Coverage, ...]
    missing: tuple[Group, ...]
    served: Mapping[int, str]
    disaggregated: Mapping[Disaggregation, int]
    findings: tuple[Finding, ...]
    doubts: tuple[Doubt, ...]


def judge_probes(
    results: Sequence[ProbeResult],
    groups: Sequence[Group],
    *,
    others: Sequence[Group] = (),
    around: Surroundings | None = None,
    minimum: int = MINIMUM_PROBES,
    least_success: float = LEAST_SUCCESS,
) -> ProbeVerdict:
    """Judge a series. `groups` must each have served; `others` are known groups that need not have.

    Red: a finding that says what is wrong, or more failures than `least_success` allows. Not evaluable: fewer than
    `minimum` judged probes, a wrong setting that makes them meaningless, disaggregation not proved, or a group
    that did not serve. Green: none of these. Warm-up results and refusals of flow control count for nothing.
    """
    around = around or Surroundings()
    known = {group.id: group for group in (*others, *groups)}
    outcomes = {result.number: outcome_of(result) for result in results}
    tally = Counter(outcomes.values())
    served_by = [result for result in results if outcomes[result.number] == "ok"]
    looked = [result for result in results if outcomes[result.number] in ("ok", "failed")]
    sights = [_sight(result, known, outcomes[result.number] == "failed") for result in looked]
    # Only what came through the gateway is proof of the path.
    good = [result for result in served_by if not result.direct]
    judged = [result for result in looked if not result.direct]
    unseen = [result for result in good if not _seen(result, known)]
    found, doubts = attribute(sights, _sides(around, known))
    settings = settings_findings(results, around, {name: group.role for name, group in known.items()})
    coverage = tuple(_coverage(group, served_by, around) for group in groups)
    proofs = Counter(_proofs(good, around))
    blank = ProbeVerdict(
        verdict="not-evaluable",
        reason="",
        sentence="",
        next_action="",
        succeeded=len(good),
        judged=len(judged),
        without_verdict=tally["no-verdict"],
        refused=tally["refused"],
        warmups=tally["warm-up"],
        coverage=coverage,
        missing=tuple(each.group for each in coverage if not each.served),
        served={result.number: _served(result, known) for result in results if not result.warmup},
        disaggregated=dict(proofs),
        findings=tuple(sorted([*found, *settings], key=lambda finding: finding.effect != "red")),
        doubts=tuple(doubts),
    )
    return _decide(blank, minimum, least_success, len(unseen))


def _decide(numbers: ProbeVerdict, minimum: int, least_success: float, unseen: int) -> ProbeVerdict:
    enough = numbers.judged >= minimum or (not numbers.succeeded and numbers.judged >= LEAST_IF_ALL_FAIL)
    for finding in numbers.findings:
        if finding.effect == "red":
            return _said(numbers, "red", finding.id, finding.sentence, finding.next_action)
    if enough and numbers.doubts and numbers.succeeded < least_success * numbers.judged:
        doubt = numbers.doubts[0]
        return _said(numbers, "red", "failures", doubt.sentence, doubt.next_action)
    for finding in numbers.findings:
        if finding.effect == "no-verdict":
            return _said(numbers, "not-evaluable", finding.id, finding.sentence, finding.next_action)
    return _weigh(numbers, minimum, unseen)


def _weigh(numbers: ProbeVerdict, minimum: int, unseen: int) -> ProbeVerdict:
    """Whether what succeeded is enough, known to be of the revision, proved, and of every group."""
    if numbers.judged < minimum:
        away = f"; flow control turned {numbers.without_verdict} away" if numbers.without_verdict else ""
        sentence = f"{numbers.judged} of {count(minimum, 'probe')} that a verdict needs{away}."
        return _said(
            numbers, "not-evaluable", "too-few-probes", sentence, "Send more probes, when there is room."
        )
    if unseen:
        sentence = f"Who served {count(unseen, 'probe')} is not known: no stamp, and no group that is known."
        action = "Have the router stamp the revision on answers, and the gateway pass the stamp on."
        return _said(numbers, "not-evaluable", "not-seen", sentence, action)
    proved = numbers.disaggregated.get("proved", 0)
    if proved < max(minimum, LEAST_PROVED * numbers.succeeded):
        of = count(numbers.succeeded, "probe")
        sentence = f"That prefill and decode were two pods is proved for {proved} of {of}."
        action = "Let the engine report tokens by source, and use prompts longer than the decider asks for."
        return _said(numbers, "not-evaluable", "disaggregation-not-proved", sentence, action)
    if numbers.missing:
        names = [f"{group.id} ({group.role})" for group in numbers.missing]
        sentence = f"Not seen to serve: {listed(names)}."
        return _said(numbers, "not-evaluable", "coverage", sentence, "Send more probes to that revision.")
    sentence = (
        f"{numbers.succeeded} of {count(numbers.judged, 'probe')} succeeded, {proved} through a proved KV transfer; "
        f"every one of {count(len(numbers.coverage), 'group')} served."
    )
    return _said(numbers, "green", "passed", sentence, "Nothing to do.")


def _said(numbers: ProbeVerdict, verdict: Verdict, reason: str, sentence: str, action: str) -> ProbeVerdict:
    return replace(numbers, verdict=verdict, reason=reason, sentence=sentence, next_action=action)


def _sight(result: ProbeResult, known: Mapping[str, Group], failed: bool) -> Sight:
    """Revisions come from the groups; else from the router's stamp, else from the pin, for the decode half. Of the
    prefill half, a stamp that is what was asked for tells it: a strict selector keeps both halves to that revision."""
    kept = result.asked if result.asked and result.stamped == result.asked else ""
    prefill = known[result.prefill].revision if result.prefill in known else kept
    decode = known[result.decode].revision if result.decode in known else result.stamped or result.asked
    return Sight(result.number, result.prefill, result.decode, prefill, decode, failed)


def _seen(result: ProbeResult, known: Mapping[str, Group]) -> bool:
    """Whether it is known which revision answered; for a pinned probe, that it is the one that was asked for."""
    served = _served(result, known)
    return served != NOT_SEEN and (not result.asked or served == result.asked)


def _served(result: ProbeResult, known: Mapping[str, Group]) -> str:
    if result.stamped:
        return result.stamped
    return known[result.decode].revision if result.decode in known else NOT_SEEN


def _sides(around: Surroundings, known: Mapping[str, Group]) -> Sides:
    """A prefill engine that finished requests without an error did its half; see Sides for the other."""
    serving, unread = set(around.alone), set()
    for name, counters in around.counters.items():
        role = known[name].role if name in known else ""
        if role == "prefill" and counters.requests and counters.error_finishes == 0:
            serving.add(name)
        if role == "decode" and counters.failed_transfers and counters.transfers == 0:
            unread.add(name)
    return Sides(frozenset(serving), frozenset(unread))


def _coverage(group: Group, good: Sequence[ProbeResult], around: Surroundings) -> Coverage:
    served = sum(group.id in (result.prefill, result.decode) for result in good)
    if served:
        return Coverage(group, served, "answers")
    counters = around.counters.get(group.id)
    # Counters tell only where answers do not name groups: else a group that others used would count as probed.
    named = any(
        result.prefill if group.role == "prefill" else result.decode for result in good if not result.direct
    )
    if not named and good and counters is not None and counters.requests and not counters.error_finishes:
        return Coverage(group, round(counters.requests), "counters")
    return Coverage(group, 0, "not-seen")


def _proofs(good: Sequence[ProbeResult], around: Surroundings) -> list[Disaggregation]:
    """Per success; a decode engine that read what its probes needed, without a failure, proves those routed to it."""
    needed: Counter[str] = Counter()
    for result in good:
        needed[result.decode] += result.prompt_tokens or 0
    proofs = []
    for result in good:
        proof = disaggregation_of(result)
        counters = around.counters.get(result.decode)
        if (
            proof == "routed"
            and counters is not None
            and counters.failed_transfers == 0
            and result.prompt_tokens
        ):
            read = counters.external_tokens or 0.0
            proof = "proved" if read >= LEAST_PROVED * needed[result.decode] else proof
        proofs.append(proof)
    return proofs
