"""The request path of a pool, derived from what was read: pods by revision and role, routes, planned shares.

Pure: objects in, view out. The same code serves the read model and steps that judge, which read live.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from controlplane.fleet.names import SET_NAME, WORKER_INDEX, created_at, labels_of
from controlplane.paths.objects import PathObjects, is_ready
from controlplane.paths.router import Router, find_router
from policy.guard import GuardNames, judge_guard, worst_guard
from policy.router.settings import scope_matches
from policy.shares import PathFacts, PlannedShares, PodCount, PoolFacts, RouteFacts, planned_shares

Json = dict[str, Any]
ROUTER_ROLE = "llm-d.ai/role"


@dataclass(frozen=True, slots=True)
class EnginePod:
    """A leader pod that the pool selects or its router's screener counts."""

    name: str
    uid: str
    ip: str
    set_name: str
    revision: str
    role: str
    ready: bool
    in_pool: bool
    in_scope: bool
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool: its object, router, pods, and the rules of routes that lead to it."""

    body: Json
    router: Router
    pods: tuple[EnginePod, ...]
    routes: tuple[Json, ...]
    objectives: tuple[Json, ...]

    @property
    def namespace(self) -> str:
        """Namespace of the pool."""
        return str(self.body["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Name of the pool."""
        return str(self.body["metadata"]["name"])

    @property
    def uid(self) -> str:
        """UID of the pool: its identity."""
        return str(self.body["metadata"]["uid"])

    @property
    def sets(self) -> tuple[str, ...]:
        """Names of the sets whose pods the pool selects."""
        return tuple(sorted({pod.set_name for pod in self.pods if pod.in_pool and pod.set_name}))

    @property
    def ports(self) -> tuple[int, ...]:
        """Ports on which the engines are reached."""
        found = (self.body.get("spec") or {}).get("targetPorts") or ()
        return tuple(int(each["number"]) for each in found)

    def facts(self) -> PoolFacts:
        """What the planned shares are made of."""
        picker = (self.body.get("spec") or {}).get("endpointPickerRef") or {}
        return PoolFacts(
            name=self.name,
            pods=_counts(self.pods),
            screener=self.router.settings.screener,
            router_ready=self.router.ready > 0,
            fail_open=picker.get("failureMode") == "FailOpen",
            decider=self.router.settings.decider,
        )


@dataclass(frozen=True, slots=True)
class PathView:
    """The pools that share routes, and what is planned over all of them."""

    pools: tuple[PoolView, ...]
    routes: tuple[RouteFacts, ...]
    planned: PlannedShares
    unread: tuple[str, ...]

    def pool(self, name: str) -> PoolView:
        """One of the pools; KeyError where it is not of this path."""
        return {pool.name: pool for pool in self.pools}[name]

    def as_json(self, name: str) -> Json:
        """The path as the pool `name` shows it."""
        pool = self.pool(name)
        return {
            "pool": {
                "name": pool.name,
                "namespace": pool.namespace,
                "uid": pool.uid,
                "ports": list(pool.ports),
            },
            "router": pool.router.as_json(),
            "sets": list(pool.sets),
            "counts": [asdict(each) for each in pool.facts().pods],
            "pools": [each.name for each in self.pools],
            "routes": [
                {"name": each.name, "weights": [list(w) for w in each.weights]} for each in self.routes
            ],
            "guard": guard_of(pool.routes, pool.router.settings.strict_header),
            "objectives": [
                {"name": each["metadata"]["name"], "priority": (each.get("spec") or {}).get("priority") or 0}
                for each in pool.objectives
            ],
            "planned": asdict(self.planned),
            "unread": list(self.unread),
        }


def derive_paths(objects: PathObjects) -> list[PathView]:
    """Every path among the objects: pools that a route weighs against each other belong to one."""
    views = [_pool_view(pool, objects) for pool in objects.pools if not _leaving(pool)]
    found = []
    for group in _connected(views):
        names = {(view.namespace, view.name) for view in group}
        routes = _routes(names, group)
        facts = PathFacts(pools=tuple(view.facts() for view in group), routes=tuple(routes))
        found.append(PathView(tuple(group), tuple(routes), planned_shares(facts), objects.unread))
    return found


def find_path(objects: PathObjects, *, pool: str) -> PathView | None:
    """The path that a pool of the objects' namespace belongs to."""
    return next((path for path in derive_paths(objects) if any(p.name == pool for p in path.pools)), None)


def paths_of_set(objects: PathObjects, *, set_name: str) -> list[PathView]:
    """The paths whose pools select pods of a set."""
    return [path for path in derive_paths(objects) if any(set_name in pool.sets for pool in path.pools)]


def guard_of(routes: Sequence[Json], strict_header: str) -> Json:
    """Whether clients can pin themselves to a revision: the weakest of all routes counts."""
    names = GuardNames()
    if strict_header and (strict_header,) not in names.headers:
        names = GuardNames(headers=((strict_header,), *names.headers[1:]))
    if not routes:
        return {"verdict": "cannot-tell", "reason": "no-route", "sentence": "No route leads to this pool."}
    worst = worst_guard([judge_guard(route, names) for route in routes])
    return {
        "verdict": worst.verdict,
        "reason": worst.reason,
        "sentence": worst.sentence,
        "next_action": worst.next_action,
        "filter": worst.filters_yaml,
    }


def _pool_view(pool: Json, objects: PathObjects) -> PoolView:
    router = find_router(pool, objects)
    metadata = pool["metadata"]
    selector = ((pool.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    pods = tuple(
        found
        for pod in objects.pods
        if pod["metadata"]["namespace"] == metadata["namespace"]
        and (found := _engine_pod(pod, selector, router)) is not None
    )
    return PoolView(
        body=pool,
        router=router,
        pods=pods,
        routes=tuple(
            r for r in objects.routes if (metadata["namespace"], metadata["name"]) in pools_of_route(r)
        ),
        objectives=tuple(
            each
            for each in objects.objectives
            if each["metadata"]["namespace"] == metadata["namespace"]
            and ((each.get("spec") or {}).get("poolRef") or {}).get("name") == metadata["name"]
        ),
    )


def _engine_pod(pod: Json, selector: Mapping[str, str], router: Router) -> EnginePod | None:
    labels = labels_of(pod)
    settings = router.settings
    in_pool = bool(selector) and selector.items() <= labels.items()
    in_scope = bool(settings.screener) and scope_matches(settings.scope, labels) is not False
    worker = labels.get(WORKER_INDEX, "0") != "0"
    if worker or not (in_pool or in_scope) or settings.revision_label not in labels:
        return None
    return EnginePod(
        name=pod["metadata"]["name"],
        uid=str(pod["metadata"].get("uid") or ""),
        ip=str(pod["status"].get("podIP") or ""),
        set_name=labels.get(SET_NAME, ""),
        revision=labels[settings.revision_label],
        role=labels.get(ROUTER_ROLE) or labels.get(settings.role_label, ""),
        ready=is_ready(pod),
        in_pool=in_pool,
        in_scope=in_scope,
        created_at=created_at(pod),
    )


def _counts(pods: Iterable[EnginePod]) -> tuple[PodCount, ...]:
    counted: dict[tuple[str, str], list[int]] = {}
    for pod in pods:
        each = counted.setdefault((pod.revision, pod.role), [0, 0, 0])
        each[0] += pod.ready
        each[1] += pod.ready and pod.in_scope
        each[2] += pod.ready and pod.in_pool
    return tuple(
        PodCount(revision, role, ready, in_scope=scope, in_pool=pool)
        for (revision, role), (ready, scope, pool) in sorted(counted.items())
    )


def pools_of_route(route: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Namespace and name of every pool that a route leads to, whatever its weight."""
    home = route["metadata"]["namespace"]
    return {
        (str(ref.get("namespace") or home), str(ref.get("name") or ""))
        for rule in (route.get("spec") or {}).get("rules") or ()
        for ref in rule.get("backendRefs") or ()
        if ref.get("kind") == "InferencePool"
    }


def _connected(views: list[PoolView]) -> list[list[PoolView]]:
    """Pools grouped by shared routes; a pool without a route is alone."""
    groups: list[list[PoolView]] = []
    for view in views:
        mine = {_route_key(route) for route in view.routes}
        joined = [g for g in groups if any(mine & {_route_key(r) for r in other.routes} for other in g)]
        merged = [view, *(other for group in joined for other in group)]
        groups = [group for group in groups if group not in joined] + [merged]
    return [sorted(group, key=lambda view: (view.namespace, view.name)) for group in groups]


def _routes(names: set[tuple[str, str]], group: Sequence[PoolView]) -> list[RouteFacts]:
    """One entry per rule that leads to a pool of the group; shares are of the requests that reach these pools."""
    routes = {_route_key(route): route for view in group for route in view.routes}
    found = []
    for key, route in sorted(routes.items()):
        rules = (route.get("spec") or {}).get("rules") or ()
        for index, rule in enumerate(rules):
            weights = _weights(rule, route["metadata"]["namespace"], names)
            if weights:
                name = f"{key[0]}/{key[1]}" + (f"#{index}" if len(rules) > 1 else "")
                found.append(RouteFacts(name=name, weights=tuple(weights)))
    return found


def _weights(rule: Mapping[str, Any], home: str, names: set[tuple[str, str]]) -> list[tuple[str, int]]:
    return [
        (str(ref.get("name")), int(ref.get("weight", 1)))
        for ref in rule.get("backendRefs") or ()
        if ref.get("kind") == "InferencePool"
        and (str(ref.get("namespace") or home), ref.get("name")) in names
    ]


def _route_key(route: Mapping[str, Any]) -> tuple[str, str]:
    return (route["metadata"]["namespace"], route["metadata"]["name"])


def _leaving(item: Mapping[str, Any]) -> bool:
    return bool(item["metadata"].get("deletionTimestamp"))
