"""Planned shares: route weights times the router's draw, with a reason for every zero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from policy.rollout.wording import listed
from policy.shares.draw import Flow, flows_of, missing_roles
from policy.shares.facts import DECODES, PREFILLS, PathFacts, PoolFacts, Reason, RouteFacts
from policy.shares.lanes import Edge, Pair, PlannedLane, PlannedShares

Parts = dict[tuple[str, Flow], Fraction]


def planned_shares(facts: PathFacts) -> PlannedShares:
    """Where requests should go, and why nothing goes elsewhere.

    Several routes whose traffic is not known are told as far as they agree; what they disagree about is an edge
    `unknown`. Requests that carry a strict revision header go where they ask and are in no plan. Raises
    ValueError for a weight that leads to a pool without facts.
    """
    pools = {pool.name: pool for pool in facts.pools}
    for route in facts.routes:
        for name, _ in route.weights:
            if name not in pools:
                raise ValueError(f"route {route.name} leads to pool {name!r}, of which there are no facts")
    parts = _all_parts(facts.routes, pools)
    unknown = sum((part for (_, flow), part in parts.items() if flow.kind == "unknown"), Fraction(0))
    edges = tuple(
        Edge(pool, flow.revision, flow.kind, float(part), flow.reason) for (pool, flow), part in parts.items()
    )
    lanes = tuple(
        _lane(pool, revision, parts, unknown, facts.routes)
        for pool in facts.pools
        for revision in pool.revisions
    )
    return PlannedShares(edges, lanes, tuple(_pairs(facts)), tuple(_notes(facts)))


def _all_parts(routes: tuple[RouteFacts, ...], pools: Mapping[str, PoolFacts]) -> Parts:
    """Every flow with its part of all requests; the parts add up to 1."""
    if not routes:
        reason = Reason("no-route", "No route leads to a pool of this model.")
        return {("", Flow("", "refused", Fraction(1), reason)): Fraction(1)}
    each = [_route_parts(route, pools) for route in routes]
    traffic = [route.traffic for route in routes]
    known = [Fraction(seen) for seen in traffic if seen is not None]
    total = sum(known, Fraction(0))
    if len(known) == len(routes) and total:
        return _mixed(each, [seen / total for seen in known])
    return _agreed(each)


def _route_parts(route: RouteFacts, pools: Mapping[str, PoolFacts]) -> Parts:
    total = sum(weight for _, weight in route.weights)
    if not total:
        reason = Reason("weights-zero", f"All weights of route {route.name} are 0: the gateway answers 500.")
        return {("", Flow("", "refused", Fraction(1), reason)): Fraction(1)}
    parts: Parts = {}
    for name, weight in route.weights:
        for flow in flows_of(pools[name]) if weight else ():
            key = (name, flow)
            parts[key] = parts.get(key, Fraction(0)) + Fraction(weight, total) * flow.part
    return parts


def _mixed(each: list[Parts], traffic: list[Fraction]) -> Parts:
    mixed: Parts = {}
    for parts, seen in zip(each, traffic, strict=True):
        for key, part in parts.items() if seen else ():
            mixed[key] = mixed.get(key, Fraction(0)) + part * seen
    return mixed


def _agreed(each: list[Parts]) -> Parts:
    """The part of each flow that every route gives it at least; the rest is unknown."""
    common = {key: min(parts.get(key, Fraction(0)) for parts in each) for key in each[0]}
    common = {key: part for key, part in common.items() if part}
    rest = 1 - sum(common.values(), Fraction(0))
    if rest:
        reason = Reason(
            "routes-differ", "Routes have different weights, and how much each carries is not known."
        )
        common["", Flow("", "unknown", rest, reason)] = rest
    return common


def _lane(
    pool: PoolFacts, revision: str, parts: Parts, unknown: Fraction, routes: tuple[RouteFacts, ...]
) -> PlannedLane:
    served = sum(
        (
            part
            for (name, flow), part in parts.items()
            if name == pool.name and flow.revision == revision and flow.kind != "refused"
        ),
        Fraction(0),
    )
    rival = [each for each in pool.revisions if pool.count(each, roles=DECODES)]
    drawn = bool(pool.screener and pool.screener.draws) or len(rival) < 2
    reasons = () if served else tuple(_zero_reasons(pool, revision, routes))
    if not served and not unknown and not reasons:
        reasons = (Reason("refused", f"Requests for {revision} are refused; see the edge."),)
    return PlannedLane(pool.name, revision, float(served), float(served + unknown), drawn, reasons)


def _zero_reasons(pool: PoolFacts, revision: str, routes: tuple[RouteFacts, ...]) -> Iterator[Reason]:
    """Everything that alone would make the share 0, from the gateway to the pods."""
    weights = [weight for route in routes for name, weight in route.weights if name == pool.name]
    if not weights:
        yield Reason("no-route", f"No route leads to {pool.name}.")
    elif not any(weights):
        yield Reason("weight-zero", f"The route weight of {pool.name} is 0.")
    if not pool.router_ready:
        yield Reason("router-down", f"No router of {pool.name} is ready.")
    ready = sum(pods.ready for pods in pool.pods if pods.revision == revision)
    if not ready:
        yield Reason("no-ready-pods", f"No pod of {revision} is ready.")
        return
    yield from _screener_reasons(pool, revision)
    if not pool.count(revision):
        yield Reason("not-in-pool", f"The selector of {pool.name} matches no ready pod of {revision}.")
    elif not pool.count(revision, roles=DECODES):
        yield Reason("no-decode-in-pool", f"{pool.name} has no ready decode pod of {revision}.")


def _screener_reasons(pool: PoolFacts, revision: str) -> Iterator[Reason]:
    if pool.screener is None or not pool.screener.draws:
        return
    if not pool.count(revision, scoped=True):
        yield Reason("scope-mismatch", f"The screener's scope matches no ready pod of {revision}.")
        return
    missing = missing_roles(pool, pool.screener, revision)
    if missing:
        noun = "role" if len(missing) == 1 else "roles"
        yield Reason(
            "role-missing", f"{revision} is incomplete: {noun} {listed(missing)} without a ready pod."
        )


def _pairs(facts: PathFacts) -> Iterator[Pair]:
    lanes = [(pool, revision) for pool in facts.pools for revision in pool.revisions]
    for pool, prefill in lanes:
        for other, decode in lanes:
            allowed, reason = _pairing(pool, prefill, other, decode)
            yield Pair((pool.name, prefill), (other.name, decode), allowed, reason)


def _pairing(pool: PoolFacts, prefill: str, other: PoolFacts, decode: str) -> tuple[bool, Reason]:
    if pool.name != other.name:
        return False, Reason("different-pools", "A router picks both pods from its own pool.")
    drawing = pool.screener is not None and pool.screener.draws
    if prefill != decode and drawing:
        return False, Reason("kept-apart", "The screener draws one revision for each request.")
    for revision, roles, name in ((prefill, PREFILLS, "prefill"), (decode, DECODES, "decode")):
        if not pool.count(revision, roles=roles):
            return False, Reason("no-pods", f"No {name} pod of {revision} can be picked.")
    if drawing and pool.screener is not None and missing_roles(pool, pool.screener, prefill):
        return False, Reason("incomplete", f"{prefill} is incomplete and never drawn.")
    if not pool.router_ready:
        return False, Reason("router-down", f"No router of {pool.name} is ready to name a prefill pod.")
    if prefill == decode:
        return True, Reason("same-revision", "Both halves belong to one revision.")
    missing = "The screener's gating is disabled" if pool.screener else "The router has no rollout screener"
    return True, Reason("nothing-keeps-apart", f"{missing}: {prefill} may prefill for {decode}.")


def _notes(facts: PathFacts) -> Iterator[Reason]:
    """What a reader of the shares should know: rules that are missing or hold only in part."""
    for pool in facts.pools:
        rivals = [each for each in pool.revisions if pool.count(each, roles=DECODES)]
        if len(rivals) > 1 and not (pool.screener and pool.screener.draws):
            yield Reason(
                "no-rule",
                f"No rule spreads requests over the revisions of {pool.name}: shares follow ready decode pods at best.",
            )
        if pool.screener and pool.screener.draws:
            left_out = sorted({"prefill", "decode"} - set(pool.screener.required_roles))
            if left_out:
                yield Reason(
                    "roles-not-required",
                    f"The screener of {pool.name} does not require {listed(left_out)}: half a revision can be drawn.",
                )
