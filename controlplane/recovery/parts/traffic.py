"""Route weights: taken to 0 where revisions would mix, and given back only to a ready set."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from controlplane.holds.live import is_external
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
    if seen.live is None or (lacking := _lacking(task, seen.live)):
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
    return Done(result={"written": written})


def _lacking(task: Task, live: Any) -> list[str]:
    """Roles of the good revision without a ready group, in words."""
    external = {role["name"] for role in live.roles if is_external(role)}
    return [
        f"{role} of slice {slice_name}"
        for role, count in goal_of(task.document, live).items()
        for slice_name in live.slices
        if (count or role in external) and not live.ready((slice_name, task.good, role))
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
