"""Whether the measured shares are those that were planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from policy.figures import percent, whole
from policy.proportions import binomial_at_least, binomial_at_most
from policy.rollout.wording import listed
from policy.shares.lanes import PlannedLane, PlannedShares
from policy.shares.measured import MeasuredLane, MeasuredShares

Verdict: TypeAlias = Literal["agree", "differ", "too-few-samples"]

# Counts come from another moment than the plan, so shares a point apart say nothing about the rule.
TOLERANCE = 0.01
# Where nothing draws, pods are picked by score: busy or cached pods get less or more without any fault.
LOOSE_TOLERANCE = 0.10
MINIMUM_SAMPLES = 100
ALPHA = 0.01


@dataclass(frozen=True, slots=True)
class LaneAgreement:
    """One revision. `chance` is how likely a count this far off is if the plan holds, tolerance included."""

    pool: str
    revision: str
    planned: float
    measured: float
    count: int
    chance: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Agreement:
    """The verdict over all revisions, and each one."""

    verdict: Verdict
    lanes: tuple[LaneAgreement, ...]
    sentence: str
    next_action: str


def agree(
    planned: PlannedShares,
    measured: MeasuredShares,
    *,
    minimum_samples: int = MINIMUM_SAMPLES,
    tolerance: float = TOLERANCE,
) -> Agreement:
    """Compare by a binomial test per revision, at 1 % over all revisions together.

    Every request served is a draw; the share that the plan gives a revision is taken with a tolerance, wider where
    no rule draws. A revision that the plan gives nothing may have nothing: one request there differs, however few
    there are. Requests at pods that are not known are left out.
    """
    plans = {(lane.pool, lane.revision): lane for lane in planned.lanes}
    seen = {(lane.pool, lane.revision): lane for lane in measured.lanes}
    served = sum(lane.count for lane in measured.lanes)
    at_all = sum(lane.share for lane in planned.lanes)
    keys = sorted({*plans, *seen})
    lanes = tuple(
        _compare(key, plans.get(key), seen.get(key), served, at_all, (minimum_samples, tolerance, len(keys)))
        for key in keys
    )
    return _overall(lanes, served, minimum_samples)


def _compare(
    key: tuple[str, str],
    plan: PlannedLane | None,
    lane: MeasuredLane | None,
    served: int,
    at_all: float,
    rule: tuple[int, float, int],
) -> LaneAgreement:
    minimum, tolerance, lanes = rule
    count = lane.count if lane else 0
    share = count / served if served else 0.0
    # What is refused is not served, so parts are taken of what the plan serves; the unknown may go anywhere.
    unknown = plan.at_most - plan.share if plan else 0.0
    least = plan.share / (at_all + unknown) if plan and at_all + unknown else 0.0
    most = min(1.0, (plan.share + unknown) / (at_all + unknown)) if plan and at_all + unknown else 0.0
    if most > 0.0:
        wide = tolerance if plan and plan.drawn else max(tolerance, LOOSE_TOLERANCE)
        if least < 1.0:
            least, most = max(0.0, least - wide), min(1.0, most + wide)
    chance = _chance(count, served, least, most)
    verdict: Verdict = "agree"
    if chance < ALPHA / lanes and (served >= minimum or most == 0.0):
        verdict = "differ"
    elif served < minimum:
        verdict = "too-few-samples"
    return LaneAgreement(*key, plan.share if plan else 0.0, share, count, chance, verdict)


def _chance(count: int, served: int, least: float, most: float) -> float:
    """Two-sided chance of a count at least this far outside of what is planned."""
    if not served:
        return 1.0
    below = binomial_at_most(count, served, least)
    above = binomial_at_least(count, served, most)
    return min(1.0, 2.0 * min(below, above))


def _overall(lanes: tuple[LaneAgreement, ...], served: int, minimum: int) -> Agreement:
    differing = [lane for lane in lanes if lane.verdict == "differ"]
    if differing:
        said = [
            f"{lane.revision} was planned {percent(lane.planned)} and measured {percent(lane.measured)} "
            f"({whole(lane.count)} of {whole(served)})"
            for lane in differing
        ]
        return Agreement(
            "differ",
            lanes,
            f"Requests do not go where the plan sends them: {listed(said)}.",
            "Look for pinned requests, filters after the draw, and a plan older than the window.",
        )
    if served < minimum:
        sentence = f"{whole(served)} of {whole(minimum)} requests that a comparison needs."
        return Agreement(
            "too-few-samples", lanes, sentence, "Wait for more requests, or use a longer window."
        )
    return Agreement(
        "agree", lanes, f"{whole(served)} requests went where the plan sends them.", "Nothing to do."
    )
