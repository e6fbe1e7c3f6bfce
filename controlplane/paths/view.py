"""The request path of a pool, derived from what was read: pods by revision and role, routes, planned shares.

Pure: objects in, view out. The same code serves the read model and steps that judge, which read live.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from controlplane.fleet.names import SET_NAME, SET_ROLE, WORKER_INDEX, created_at, labels_of
from controlplane.paths.objects import Lookup, PathObjects, is_ready, restarts_of
from controlplane.paths.router import Router, find_router
from policy.guard import GuardNames, judge_guard, worst_guard
from policy.router.settings import labels_demanded, scope_matches
from policy.shares import PathFacts, PlannedShares, PodCount, PoolFacts, RouteFacts, planned_shares

Json = dict[str, Any]
ROUTER_ROLE = "llm-d.ai/role"


@dataclass(frozen=True, slots=True)
class EnginePod:
    """A leader pod that the pool selects or its router's screener counts. `role` is what routers go by, `set_role` the
    set's own name for it."""

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
    set_role: str = ""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool: its object, router, pods, the routes that lead to it, and the names of the sets that it selects.

    A set is named even where its pods lack the label that the screener takes for the revision."""

    body: Json
    router: Router
    pods: tuple[EnginePod, ...]
    routes: tuple[Json, ...]
    objectives: tuple[Json, ...]
    sets: tuple[str, ...] = ()

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
    around = _Around(objects)
    return [around.path(group) for group in around.groups]


def find_path(objects: PathObjects, *, pool: str) -> PathView | None:
    """The path that a pool of the objects' namespace belongs to. Other pools' ConfigMaps are not read."""
    around = _Around(objects)
    found = (group for group in around.groups if any(each["metadata"]["name"] == pool for each in group))
    return next((around.path(group) for group in found), None)


def paths_of_set(objects: PathObjects, *, set_name: str) -> list[PathView]:
    """The paths whose pools select pods of a set. ConfigMaps of others are not read."""
    around = _Around(objects)
    near = [group for group in around.groups if any(around.may_select(pool, set_name) for pool in group)]
    paths = [around.path(group) for group in near]
    return [path for path in paths if any(set_name in pool.sets for pool in path.pools)]


class _Around:
    """The objects of one derivation, by what is asked of them, and the pools grouped by the routes they share."""

    def __init__(self, objects: PathObjects) -> None:
        self.objects = objects
        self.lookup = Lookup(objects)
        self.routes: dict[tuple[str, str], list[Json]] = {}
        for route in objects.routes:
            for key in pools_of_route(route):
                self.routes.setdefault(key, []).append(route)
        self.objectives: dict[tuple[str, str], list[Json]] = {}
        for each in objects.objectives:
            name = ((each.get("spec") or {}).get("poolRef") or {}).get("name")
            self.objectives.setdefault((each["metadata"]["namespace"], str(name or "")), []).append(each)
        self.groups = _connected([pool for pool in objects.pools if not _leaving(pool)], self.routes)

    def path(self, group: Sequence[Json]) -> PathView:
        """The path of pools that belong together."""
        views = [_pool_view(pool, self) for pool in group]
        names = {(view.namespace, view.name) for view in views}
        routes = tuple(_routes(names, views))
        facts = PathFacts(pools=tuple(view.facts() for view in views), routes=routes)
        return PathView(tuple(views), routes, planned_shares(facts), self.objects.unread)

    def may_select(self, pool: Json, set_name: str) -> bool:
        """Whether the pool's selector matches a pod of the set."""
        selector = _selector(pool)
        if not selector or selector.get(SET_NAME, set_name) != set_name:
            return False
        return bool(self.lookup.pods(pool["metadata"]["namespace"], {**selector, SET_NAME: set_name}))


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


def _pool_view(pool: Json, around: _Around) -> PoolView:
    router = find_router(pool, around.objects, around.lookup)
    key = _key(pool)
    selector = _selector(pool)
    selected = around.lookup.pods(key[0], selector)
    places = set(around.lookup.places(key[0], selector) if selector else ())
    if router.settings.screener:
        places.update(around.lookup.places(key[0], labels_demanded(router.settings.scope)))
    found = (_engine_pod(around.objects.pods[place], selector, router) for place in sorted(places))
    return PoolView(
        body=pool,
        router=router,
        pods=tuple(pod for pod in found if pod is not None),
        routes=tuple(around.routes.get(key, ())),
        objectives=tuple(around.objectives.get(key, ())),
        sets=tuple(sorted({labels_of(pod).get(SET_NAME, "") for pod in selected if _leads(pod)} - {""})),
    )


def _leads(pod: Json) -> bool:
    return labels_of(pod).get(WORKER_INDEX, "0") == "0"


def _selector(pool: Mapping[str, Any]) -> dict[str, str]:
    return ((pool.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}


def _engine_pod(pod: Json, selector: Mapping[str, str], router: Router) -> EnginePod | None:
    labels = labels_of(pod)
    settings = router.settings
    in_pool = bool(selector) and selector.items() <= labels.items()
    in_scope = bool(settings.screener) and scope_matches(settings.scope, labels) is True
    if not _leads(pod) or not (in_pool or in_scope) or settings.revision_label not in labels:
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
        set_role=labels.get(SET_ROLE, ""),
        restarts=restarts_of(pod),
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


def _connected(pools: Sequence[Json], routes: Mapping[tuple[str, str], Sequence[Json]]) -> list[list[Json]]:
    """Pools grouped by shared routes; a pool without a route is alone. Each group stands where its last pool did."""
    parent = list(range(len(pools)))

    def last(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    seen: dict[tuple[str, str], int] = {}
    for place, pool in enumerate(pools):
        for route in routes.get(_key(pool), ()):
            parent[last(seen.setdefault(_key(route), place))] = place
    groups: dict[int, list[Json]] = {}
    for place, pool in enumerate(pools):
        groups.setdefault(last(place), []).append(pool)
    return [sorted(groups[place], key=_key) for place in sorted(groups)]


def _routes(names: set[tuple[str, str]], group: Sequence[PoolView]) -> list[RouteFacts]:
    """One entry per rule that leads to a pool of the group; shares are of the requests that reach these pools."""
    routes = {_key(route): route for view in group for route in view.routes}
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


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    return (item["metadata"]["namespace"], item["metadata"]["name"])


def _leaving(item: Mapping[str, Any]) -> bool:
    return bool(item["metadata"].get("deletionTimestamp"))
