"""Whether a prefill and a decode engine may be paired.

Outcomes, worst first: incompatible (the engine refuses), dangerous (it lets in what must not be mixed),
unknown (with the exact missing facts), slow (all fits, the way is slow), compatible (every factor is known
and fits). A partial view is never called compatible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policy.rollout.wording import count
from policy.transfer.facts import EngineFacts, RevisionFacts
from policy.transfer.findings import OUTCOMES, Factor, Finding, MissingFact, Outcome, Verdict
from policy.transfer.pair import Pair, Ruling, join, read_pair
from policy.transfer.rules_danger import danger_rules
from policy.transfer.rules_geometry import geometry_rules
from policy.transfer.rules_hash import hash_rules
from policy.transfer.rules_other import connector_rules, kind_rules, sglang_rules, trtllm_rules
from policy.transfer.rules_setting import setting_rules
from policy.transfer.rules_speed import speed_rules


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """The verdict for the prefill engines of one revision and the decode engines of another.

    `allowed` says whether the router can pair them. `blocks` is true where it can and should not.
    """

    prefill_revision: str
    decode_revision: str
    allowed: bool
    verdict: Verdict

    @property
    def blocks(self) -> bool:
        """Whether this pair stands in the way of having both revisions serve at once."""
        return self.allowed and not self.verdict.may_meet


def judge_pair(prefill: EngineFacts, decode: EngineFacts) -> Verdict:
    """Judges one pair by the rules of research/telemetry.md 3, from facts alone."""
    pair = read_pair(prefill, decode)
    found = join(
        [kind_rules(pair), *_by_engine(pair), danger_rules(pair), setting_rules(pair), speed_rules(pair)]
    )
    outcome = _worst(found)
    identical = pair.same.identical and outcome in ("compatible", "slow")
    return Verdict(
        outcome,
        _sentence(outcome, found, pair),
        tuple(sorted(found.findings, key=_weight)),
        found.missing,
        found.factors,
        rests_on=_rests_on(outcome, found, pair),
        by_identity=identical,
    )


def judge_pairs(revisions: Sequence[RevisionFacts], *, allowed: bool) -> tuple[PairVerdict, ...]:
    """Every pair of a prefill of one revision and a decode of another, in the order given.

    `allowed` says whether the router can pair engines of two revisions; those of one revision it always can.
    A revision without one of the two roles has no pairs for it.
    """
    return tuple(
        PairVerdict(
            one.name, other.name, allowed or one.name == other.name, judge_pair(one.prefill, other.decode)
        )
        for one in revisions
        for other in revisions
        if one.prefill is not None and other.decode is not None
    )


def _by_engine(pair: Pair) -> list[Ruling]:
    kinds = {pair.prefill.kind, pair.decode.kind}
    if len(kinds - {"unknown"}) > 1:
        return []
    kind = next(iter(kinds - {"unknown"}), "unknown")
    if kind == "sglang":
        return [sglang_rules(pair)]
    if kind == "trtllm":
        return [trtllm_rules(pair)]
    if kind == "unknown" and pair.same.identical:
        return []
    # An engine that cannot be read is held against vLLM's factors, which are the most: all are listed missing.
    return [hash_rules(pair), geometry_rules(pair) if pair.families == {"nixl"} else connector_rules(pair)]


def _worst(found: Ruling) -> Outcome:
    made = [each.makes for each in found.findings]
    if found.missing:
        made.append("unknown")
    return next((outcome for outcome in OUTCOMES if outcome in made), "compatible")


def _weight(found: Finding) -> int:
    return OUTCOMES.index(found.makes) if found.makes is not None else len(OUTCOMES)


def _sentence(outcome: Outcome, found: Ruling, pair: Pair) -> str:
    made = list(dict.fromkeys(each.factor for each in found.findings if each.makes == outcome))
    factors = ", ".join(made)
    if outcome == "incompatible":
        return f"These two cannot move KV: {factors}."
    if outcome == "dangerous":
        return f"The engines may let this pair in, and it must not be mixed: {factors}."
    if outcome == "unknown":
        return f"Not known: {count(len(found.missing), 'fact')} missing. {_listed(found.missing)}"
    if outcome == "slow":
        return f"The pair fits and is slow: {factors}."
    if pair.same.identical:
        return "Compatible by identity: both sides are the same engine."
    return f"Compatible: all {len(found.factors)} factors are known and fit."


def _listed(missing: Sequence[MissingFact]) -> str:
    said = [f"{'both sides' if each.side == 'both' else each.side}: {each.fact}" for each in missing]
    return "; ".join(said) + "."


def _rests_on(outcome: Outcome, found: Ruling, pair: Pair) -> tuple[str, ...]:
    if outcome not in ("compatible", "slow"):
        return ()
    if pair.same.identical:
        return pair.same.rests_on
    return tuple(f"{each.label}: {_why(each)}" for each in found.factors)


def _why(factor: Factor) -> str:
    if factor.state == "different":
        return f"{factor.prefill.value} on prefill and {factor.decode.value} on decode, which the rules allow"
    return factor.because or f"{factor.prefill.value} on both sides"
