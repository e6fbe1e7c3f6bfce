"""Route weights: taken to 0 where revisions would mix, and given back only to a ready set."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from controlplane.holds.live import LiveSet, is_external
from controlplane.kube.resources import HTTP_ROUTES
from controlplane.operations.contract import Done, Hold, Outcome, PlannedStep, Wait
from controlplane.paths.view import pools_of_route
from controlplane.recovery.parts.task import Task, goal_of
from controlplane.recovery.reading import rules_of

Json = dict[str, Any]
DRAIN_SETTLES = 5.0  # seconds; a gateway takes new weights up within one, requests under way keep their pair


def drain_traffic(task: Task, *, pools: list[str]) -> Outcome:
    """Weight 0 for these pools in every route that leads to them; what the weights were is remembered first."""
    routes = [
        route
        for route in task.see().objects.routes
        if {(task.namespace, name) for name in pools} & pools_of_route(route)
    ]
    drained: Json = task.memory.get("drained") or {}
    if missing := [route for route in routes if _key(route) not in drained]:
        noted = {**drained, **{_key(route): rules_of(route) for route in missing}}
        again = PlannedStep("recovery.drain_traffic", {"pools": pools})
        return Done(result={"noted": sorted(noted)}, remember={"drained": noted}, append=(again,))
    written = []
    for route in routes:
        wanted = [
            [
                {**ref, "weight": 0} if (ref["namespace"], ref["name"]) in {(task.namespace, p) for p in pools}
                else ref
                for ref in rule
            ]
            for rule in rules_of(route)
        ]  # fmt: skip
        if _write(task, route, wanted):
            written.append(_key(route))
    if written or task.waited < DRAIN_SETTLES:
        return Wait(1, "the gateway to send nothing more to the pool")
    return Done(result={"drained": [_key(route) for route in routes]})


def put_weights(task: Task) -> Outcome:
    """The recorded weights, and those of drained routes that were not recorded; only to a complete ready set."""
    seen = task.see()
    if seen.live is None or (lacking := _lacking(seen.live, task.good, _wanted(task, seen.live))):
        return _not_ready(task, lacking if seen.live else ["the set"])
    stands = {_key(route): route for route in seen.objects.routes}
    wanted: Json = {**(task.memory.get("drained") or {})}
    wanted.update({f"{each['namespace']}/{each['name']}": each["rules"] for each in task.document["routes"]})
    written, problems = [], []
    for key, rules in sorted(wanted.items()):
        route = stands.get(key)
        if route is None:
            problems.append(f"{key} does not exist")
        elif _backends(rules_of(route)) != _backends(rules):
            problems.append(f"the rules of {key} lead to other backends than recorded")
        elif _write(task, route, rules):
            written.append(key)
    if problems:
        return Hold(
            code="route-changed",
            sentence=f"Weights cannot be put back: {'; '.join(problems)}.",
            next_action="Put these routes back by hand, then retry; or abort.",
            facts={"written": written},
        )
    return Done(result={"written": written}, remember={"drained": {}})


def return_traffic(task: Task) -> Outcome:
    """After a restore that was stopped: the weights of before the drain, as soon as one revision serves alone, because
    without screening two would mix. A weight that somebody has given meanwhile stays."""
    seen = task.see()
    if waits_for := _not_alone(seen.live):
        return Wait(5, f"{waits_for}: then traffic that was drained is given back", who="operators")
    stands = {_key(route): route for route in seen.objects.routes}
    written, left = [], []
    for key, rules in sorted((task.memory.get("drained") or {}).items()):
        route = stands.get(key)
        if route is None or _backends(rules_of(route)) != _backends(rules):
            left.append(key)
            continue
        wanted = [
            [
                ref if ref["weight"] else {**ref, "weight": was["weight"]}
                for ref, was in zip(now, then, strict=True)
            ]
            for now, then in zip(rules_of(route), rules, strict=True)
        ]
        if _write(task, route, wanted):
            written.append(key)
    return Done(result={"written": written, "left_as_found": left}, remember={"drained": {}})


def _not_alone(live: LiveSet | None) -> str:
    """What a set lacks to be given traffic without screening; "" where it lacks nothing."""
    labels = sorted(live.live_labels()) if live else []
    if live is None or len(labels) != 1:
        return f"one revision to serve alone (now: {', '.join(labels) or 'none'})"
    lacking = _lacking(live, labels[0], {role["name"]: live.target(role) for role in live.roles})
    return f"a ready group of {', '.join(lacking)}" if lacking else ""


def _wanted(task: Task, live: LiveSet) -> dict[str, int]:
    """Recorded groups per role; a role that is sized from outside has at least one before it is given traffic."""
    external = {role["name"] for role in live.roles if is_external(role)}
    goal = goal_of(task.document, live)
    return {role: max(count, 1) if role in external else count for role, count in goal.items()}


def _lacking(live: LiveSet, label: str, goal: Mapping[str, int]) -> list[str]:
    """Roles that have groups by the goal, and no ready one of this revision, in words."""
    return [
        f"{role} of slice {slice_name}"
        for role, count in goal.items()
        for slice_name in live.slices
        if count and not live.ready((slice_name, label, role))
    ]


def _not_ready(task: Task, lacking: list[str]) -> Outcome:
    said = f"a ready group of every role in revision {task.good} (missing: {', '.join(lacking)})"
    if task.waited < task.stuck_after:
        return Wait(2, said)
    return Hold(
        code="restore-not-ready",
        sentence=f"No weight is given to a set that is not ready: {', '.join(lacking)}.",
        next_action="Look at its pods, then retry; or abort.",
    )


def _write(task: Task, route: Json, rules: list[list[Json]]) -> bool:
    """Give the backends these weights, in their order; False where they have them."""
    if rules_of(route) == rules:
        return False
    body = deepcopy(route)
    for rule, refs in zip(body["spec"]["rules"], rules, strict=True):
        for ref, wanted in zip(rule.get("backendRefs") or (), refs, strict=True):
            ref["weight"] = wanted["weight"]
    task.kube.replace(HTTP_ROUTES, body)
    return True


def _backends(rules: list[list[Json]]) -> list[list[tuple[str, str]]]:
    return [[(ref["namespace"], ref["name"]) for ref in rule] for rule in rules]


def _key(route: Mapping[str, Any]) -> str:
    return f"{route['metadata']['namespace']}/{route['metadata']['name']}"
