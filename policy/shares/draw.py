"""How one router spreads requests over the revisions behind its pool."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from policy.rollout.wording import listed
from policy.shares.facts import DECODES, PREFILLS, PoolFacts, Reason, Screener
from policy.shares.lanes import EdgeKind


@dataclass(frozen=True, slots=True)
class Flow:
    """A part of a pool's requests; see Edge."""

    revision: str
    kind: EdgeKind
    part: Fraction
    reason: Reason | None = None


def missing_roles(pool: PoolFacts, screener: Screener, revision: str) -> tuple[str, ...]:
    """Required roles of which the screener counts no ready pod."""
    return tuple(
        role
        for role in screener.required_roles
        if not pool.count(revision, scoped=True, roles=frozenset({role}))
    )


def drawn_parts(pool: PoolFacts, screener: Screener) -> dict[str, Fraction]:
    """Parts of the screener's draw, for revisions that can be drawn.

    Complete revisions are weighted by their required roles (`sum`), or by that one role which has most pods over
    all complete revisions, the first named at a tie (`max-role`). Of these only revisions of which the pool
    selects a pod are drawn, in the same proportion.
    """
    complete = [each for each in pool.revisions if not missing_roles(pool, screener, each)]
    counted = set(screener.required_roles)
    if screener.mode == "max-role" and screener.required_roles:
        totals = {
            role: sum(pool.count(each, scoped=True, roles=frozenset({role})) for each in complete)
            for role in screener.required_roles
        }
        counted = {max(screener.required_roles, key=lambda role: totals[role])}
    weights = {
        each: pool.count(each, scoped=True, roles=frozenset(counted)) for each in complete if pool.count(each)
    }
    return _parts(weights)


def flows_of(pool: PoolFacts) -> tuple[Flow, ...]:
    """All requests that reach the pool's gateway backend, as parts that add up to 1."""
    if not pool.router_ready:
        return (_without_router(pool),)
    if pool.screener is not None and pool.screener.draws:
        parts = drawn_parts(pool, pool.screener)
        refusal = Reason(
            "no-complete-revision", f"No revision behind {pool.name} is complete: 503 for everybody."
        )
    else:
        parts = _parts({each: pool.count(each, roles=DECODES) for each in pool.revisions})
        refusal = Reason("no-decode-pods", f"No decode pod behind {pool.name} is ready: 503 for everybody.")
    if not parts:
        return (Flow("", "refused", Fraction(1), refusal),)
    return tuple(_flow(pool, revision, part) for revision, part in parts.items())


def _without_router(pool: PoolFacts) -> Flow:
    if pool.fail_open:
        sentence = f"No router of {pool.name} is ready and the pool fails open: the gateway picks any pod."
        return Flow("", "unknown", Fraction(1), Reason("router-down", sentence))
    sentence = f"No router of {pool.name} is ready and the pool fails closed: every request is refused."
    return Flow("", "refused", Fraction(1), Reason("router-down", sentence))


def _flow(pool: PoolFacts, revision: str, part: Fraction) -> Flow:
    """What becomes of the requests for which a revision was drawn or is expected."""
    kept_inside = pool.screener is not None and pool.screener.draws
    sources = (revision,) if kept_inside else pool.revisions
    if not pool.count(revision, roles=DECODES):
        sentence = f"{revision} is drawn, but {pool.name} selects no decode pod of it: 503."
        return Flow(revision, "refused", part, Reason("no-decode-in-pool", sentence))
    if not any(pool.count(each, roles=PREFILLS) for each in sources):
        sentence = f"No ready prefill pod of {listed(sources)} can be picked: decode pods do all the work."
        return Flow(revision, "decode-only", part, Reason("no-prefill-pods", sentence))
    if pool.decider == "always":
        return Flow(revision, "prefilled", part)
    if pool.decider == "never":
        sentence = "The router's decider never uses a prefill pod."
        return Flow(revision, "decode-only", part, Reason("decider-never", sentence))
    sentence = (
        "Short or cached prompts skip prefill: the decider looks at each prompt."
        if pool.decider == "by-prompt"
        else "When the router uses a prefill pod is not known."
    )
    return Flow(revision, "unsplit", part, Reason(f"decider-{pool.decider}", sentence))


def _parts(weights: dict[str, int]) -> dict[str, Fraction]:
    total = sum(weights.values())
    return {each: Fraction(weight, total) for each, weight in weights.items() if weight}
