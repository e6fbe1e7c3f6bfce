"""From the objects of a cluster to request paths: routers, shares with reasons, guards, and what is not known."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.fleet.names import labels_of
from controlplane.kube.errors import Denied
from controlplane.paths.models import Pool
from controlplane.paths.objects import PathObjects
from controlplane.paths.services import record_pools, seen_pools
from controlplane.paths.view import PathView, derive_paths, find_path, paths_of_set, pools_of_route
from deploy.demo.gateway.manifests import http_route
from deploy.demo.router.config import example_config
from tests.controlplane.operations.toy import make_cluster
from tests.controlplane.paths.world import NAMESPACE, engine, engines, objects
from workers import watching_paths

OLD, NEW = "aaaaaaaa", "bbbbbbbb"
AT_HOLD = {("prefill", OLD): 4, ("decode", OLD): 2, ("prefill", NEW): 1, ("decode", NEW): 1}


def the_path(**options: Any) -> PathView:
    path = find_path(objects("chat", **options), pool="chat")
    assert path is not None
    return path


def shares(path: PathView) -> dict[str, float]:
    return {lane.revision: round(lane.share, 6) for lane in path.planned.lanes}


def test_at_a_hold_the_shares_are_those_that_the_router_draws() -> None:
    path = the_path(pods=engines("chat", AT_HOLD))
    assert shares(path) == {OLD: 0.8, NEW: 0.2}
    allowed = {(pair.prefill[1], pair.decode[1]): pair.allowed for pair in path.planned.pairs}
    assert allowed == {(OLD, OLD): True, (NEW, NEW): True, (OLD, NEW): False, (NEW, OLD): False}


def test_an_incomplete_revision_gets_nothing_and_says_why() -> None:
    path = the_path(pods=engines("chat", {**AT_HOLD, ("decode", NEW): 0}))
    lane = next(lane for lane in path.planned.lanes if lane.revision == NEW)
    assert lane.share == 0 and lane.reasons and "decode" in lane.reasons[0].sentence


def test_without_a_screener_pairs_of_two_revisions_meet() -> None:
    plain = example_config("chat").replace("disaggregatedset-rollout-screener", "unknown-screener")
    path = the_path(pods=engines("chat", AT_HOLD), config=plain)
    assert path.pool("chat").router.settings.screener is None
    mixed = [pair for pair in path.planned.pairs if pair.prefill[1] != pair.decode[1]]
    assert mixed and all(pair.allowed for pair in mixed)


def test_pods_that_are_not_ready_or_only_workers_do_not_count() -> None:
    pods = [
        *engines("chat", AT_HOLD),
        engine("chat", "prefill", NEW, 7, ready=False),
        engine("chat", "prefill", NEW, 8, worker=1),
    ]
    assert shares(the_path(pods=pods)) == {OLD: 0.8, NEW: 0.2}


def test_two_pools_behind_one_route_are_one_path_with_weights() -> None:
    route = http_route(
        "both", NAMESPACE, gateway="front", gateway_namespace=NAMESPACE, pools={"blue": 90, "green": 10}
    )
    pods = engines("blue", {("prefill", OLD): 1, ("decode", OLD): 1})
    pods += engines("green", {("prefill", NEW): 1, ("decode", NEW): 1})
    paths = derive_paths(objects("blue", "green", "other", pods=pods, routes=[route]))
    assert [[pool.name for pool in path.pools] for path in paths] == [["blue", "green"], ["other"]]
    assert shares(paths[0]) == {OLD: 0.9, NEW: 0.1}
    assert paths[1].planned.edges[0].kind == "refused", "no route leads there"


def test_a_set_is_found_by_the_pods_that_a_pool_selects() -> None:
    seen = objects("chat", "code", pods=engines("chat", AT_HOLD))
    assert [path.pools[0].name for path in paths_of_set(seen, set_name="chat")] == ["chat"]
    assert paths_of_set(seen, set_name="code") == []


@pytest.mark.parametrize(
    ("change", "sure"),
    [
        ({"immutable": True}, True),
        ({"immutable": False, "at": "2026-11-30T09:00:00Z"}, True),
        ({"immutable": False, "at": "2026-11-30T11:00:00Z"}, False),
        ({"immutable": False, "at": "2026-11-30T10:00:00Z"}, False),
        ({"immutable": True, "made": "2026-11-30T11:00:00Z"}, False),
        ({"immutable": True, "made": None}, False),
        ({"immutable": False, "at": "2026-11-30T09:00:00Z", "made": "2026-11-30T11:00:00Z"}, False),
        # In the second of the start: certain only where the name is made of the content.
        ({"immutable": True, "made": "2026-11-30T10:00:00Z"}, True),
        ({"immutable": True, "made": "2026-11-30T10:00:00Z", "text": "plugins: []"}, False),
    ],
)
def test_a_configuration_written_after_the_router_started_is_not_what_it_runs(
    change: Any, sure: bool
) -> None:
    seen = objects("chat", pods=[])
    name = seen.deployments[0]["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    kept: Any = seen.config_map(NAMESPACE, name)
    written = {**kept, "immutable": change["immutable"]}
    if "at" in change:
        written["metadata"] = {**kept["metadata"], "managedFields": [{"time": change["at"]}]}
    if "made" in change:
        written["metadata"] = {**written["metadata"], "creationTimestamp": change["made"]}
    if "text" in change:
        written["data"] = dict.fromkeys(kept["data"], change["text"])
    path = the_path(pods=[], config_maps={name: written})
    config = path.pool("chat").router.config
    assert (config.kind, config.name, config.sure) == ("config-map", name, sure)


def test_what_cannot_be_found_is_said() -> None:
    seen = objects("chat", pods=engines("chat", AT_HOLD), config_maps={})
    no_service = derive_paths(type(seen)(pools=seen.pools, routes=seen.routes, pods=seen.pods))[0]
    assert "does not exist" in no_service.pool("chat").router.problems[0]
    assert no_service.planned.edges[0].kind in ("refused", "unknown")
    gone = the_path(
        pods=[],
        config_maps={
            seen.deployments[0]["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]: {
                "metadata": {"name": "x"}
            }
        },
    )
    assert "cannot be read" in gone.pool("chat").router.problems[0]


def test_a_router_that_is_down_stops_everything() -> None:
    path = the_path(pods=engines("chat", AT_HOLD), router_ready=False, failure_mode="FailClose")
    assert path.planned.edges[0].kind == "refused"
    assert path.planned.edges[0].reason is not None and path.planned.edges[0].reason.id == "router-down"


@pytest.mark.parametrize("guard", [True, False])
def test_a_route_that_lets_clients_pin_is_open(guard: bool) -> None:
    route = http_route(
        "chat", NAMESPACE, gateway="front", gateway_namespace=NAMESPACE, pools={"chat": 1}, guard=guard
    )
    shown = the_path(pods=engines("chat", AT_HOLD), routes=[route]).as_json("chat")["guard"]
    assert shown["verdict"] == ("guarded" if guard else "open")
    assert guard or "x-disagg-revision" in shown["filter"]


SET = "disaggregatedset.x-k8s.io/name"
NAMES = ("m0", "m1", "m2", "m3", "m4")


@st.composite
def worlds(draw: st.DrawFn) -> PathObjects:
    """A few pools, some without a selector, of sets that share routes, here or in another namespace."""
    selectors = st.sampled_from([{}, {SET: "m0"}, {SET: "m1"}, {"tier": "a"}, {SET: "m2", "tier": "b"}])
    tiers = st.sampled_from(["a", "b"])
    pods = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        for pod in engines(name, {("prefill", OLD): 2, ("decode", OLD): 1}):
            pod["metadata"]["labels"]["tier"] = draw(tiers)
            pod["metadata"]["namespace"] = draw(st.sampled_from([NAMESPACE, NAMESPACE, "away"]))
            pods.append(pod)
    routes = [
        _route(f"r{index}", draw(st.sampled_from([NAMESPACE, "away"])), ends)
        for index, ends in enumerate(
            draw(st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True), max_size=4))
        )
    ]
    made = objects(*draw(st.permutations(NAMES)), pods=pods, routes=routes)
    for pool in made.pools:
        pool["spec"]["selector"] = {"matchLabels": draw(selectors)}
    if draw(st.booleans()):
        made.pools[0]["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    return made


def _route(name: str, namespace: str, pools: list[str]) -> Any:
    # Without a namespace a name means the pool beside the route: for one from away, none of these.
    place = {} if name == "r0" else {"namespace": NAMESPACE}
    refs = [{"kind": "InferencePool", "name": each, "weight": 1, **place} for each in pools]
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"rules": [{"backendRefs": refs}]}}


def naive(seen: PathObjects) -> list[Mapping[str, Any]]:
    """Every pool against every pod and route, and groups merged until nothing is shared any more."""
    groups: list[Any] = []
    for pool in seen.pools:
        if pool["metadata"].get("deletionTimestamp"):
            continue
        name = pool["metadata"]["name"]
        wanted = pool["spec"]["selector"]["matchLabels"].items()
        pods = {
            pod["metadata"]["name"]
            for pod in seen.pods
            if pod["metadata"]["namespace"] == NAMESPACE
            and SET in labels_of(pod)
            and ((wanted and wanted <= labels_of(pod).items()) or labels_of(pod)[SET] == name)
        }
        routes = {r["metadata"]["name"] for r in seen.routes if (NAMESPACE, name) in pools_of_route(r)}
        near = [group for group in groups if group["routes"] & routes]
        groups = [group for group in groups if group not in near]
        both: Any = {"pools": {name: pods}, "routes": routes}
        for group in near:
            both = {"pools": both["pools"] | group["pools"], "routes": both["routes"] | group["routes"]}
        groups.append(both)
    return groups


def outline(paths: list[PathView]) -> list[Mapping[str, Any]]:
    return [
        {
            "pools": {pool.name: {pod.name for pod in pool.pods} for pool in path.pools},
            "routes": {r["metadata"]["name"] for pool in path.pools for r in pool.routes},
        }
        for path in paths
    ]


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_paths_are_those_of_every_pool_against_every_pod_and_route(seen: PathObjects) -> None:
    assert outline(derive_paths(seen)) == naive(seen)
    for name in NAMES:
        mine = [path for path in derive_paths(seen) if any(name in pool.sets for pool in path.pools)]
        assert outline(paths_of_set(seen, set_name=name)) == outline(mine)
        found = find_path(seen, pool=name)
        assert outline([found] if found else []) == [g for g in naive(seen) if name in g["pools"]]


def test_a_pool_without_a_selector_selects_nothing() -> None:
    seen = objects("chat", pods=engines("chat", AT_HOLD))
    seen.pools[0]["spec"]["selector"] = {}
    assert derive_paths(seen)[0].pools[0].sets == () and paths_of_set(seen, set_name="chat") == []


def test_one_set_reads_only_the_configurations_of_pools_that_can_matter() -> None:
    names = [f"m{index}" for index in range(30)]
    both = http_route(
        "both", NAMESPACE, gateway="front", gateway_namespace=NAMESPACE, pools={"m3": 90, "m4": 10}
    )
    seen = objects(*names, pods=[pod for name in names for pod in engines(name, AT_HOLD)], routes=[both])
    asked: list[str] = []

    def read(namespace: str, name: str) -> Any:
        asked.append(name)
        return seen.config_map(namespace, name)

    counted = replace(seen, config_map=read)
    (path,) = paths_of_set(counted, set_name="m3")
    assert [pool.name for pool in path.pools] == ["m3", "m4"] and len(asked) == 2
    asked.clear()
    assert find_path(counted, pool="m9") is not None and len(asked) == 1
    asked.clear()
    assert len(derive_paths(counted)) == 29 and len(asked) == 30


def test_the_work_grows_with_the_pods_not_with_pods_times_pools() -> None:
    looks = 0

    class Labels(dict[str, str]):
        def items(self) -> Any:
            nonlocal looks
            looks += 1
            return super().items()

    names = [f"m{index}" for index in range(60)]
    seen = objects(*names, pods=[pod for name in names for pod in engines(name, AT_HOLD)])
    for pod in seen.pods:
        pod["metadata"]["labels"] = Labels(pod["metadata"]["labels"])
    derive_paths(seen)
    assert looks <= 4 * len(seen.pods), "each pool looked at every pod"


class Cluster:
    """A cluster that answers, refuses to list pools, or has none."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses

    def list(self, resource: Any, namespace: str | None = None, **_: Any) -> Any:
        """No objects of any kind."""
        if self.refuses and resource.plural == "inferencepools":
            raise Denied("it may not list them", status=403)
        return SimpleNamespace(items=[])


@pytest.mark.django_db
@pytest.mark.parametrize("refuses", [True, False])
def test_pools_that_may_not_be_listed_are_not_gone(monkeypatch: pytest.MonkeyPatch, refuses: bool) -> None:
    row = make_cluster(watcher_fence=3)
    paths = derive_paths(objects("chat", pods=engines("chat", AT_HOLD)))
    record_pools(cluster_id=row.pk, fence=3, seen=seen_pools(paths))
    row.refresh_from_db()
    read_at = row.paths_read_at
    monkeypatch.setattr(
        watching_paths, "connect_cluster", lambda cluster: nullcontext(Cluster(refuses=refuses))
    )
    watch = watching_paths.PathsWatch(cluster_id=row.pk, name="east", fence=lambda: 3, stop=threading.Event())
    assert watch.read() == (0 if refuses else 1)
    row.refresh_from_db()
    assert (Pool.objects.get().gone_at is None) is refuses
    assert (row.paths_read_at == read_at) is refuses, "what is shown grows old"


def test_an_immutable_configuration_made_anew_under_its_name_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, reads = 1000.0, 0
    monkeypatch.setattr(watching_paths.time, "monotonic", lambda: now)

    def find(resource: Any, name: str, namespace: str) -> Any:
        nonlocal reads
        reads += 1
        return {"metadata": {"name": name}, "immutable": True, "data": {"made": str(reads)}}

    kept, kube = watching_paths.ConfigMaps(), SimpleNamespace(find=find)
    for _ in range(5):
        now += watching_paths.KEPT_S / 10
        assert kept.reader(kube)(NAMESPACE, "chat") is not None
    assert reads == 1, "once for many rounds"
    now += watching_paths.KEPT_S
    seen = kept.reader(kube)(NAMESPACE, "chat")
    assert seen is not None and seen["data"]["made"] == "2"
