"""From the objects of a cluster to request paths: routers, shares with reasons, guards, and what is not known."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.paths.view import PathView, derive_paths, find_path, paths_of_set
from deploy.demo.gateway.manifests import http_route
from deploy.demo.router.config import example_config
from tests.controlplane.paths.world import NAMESPACE, engine, engines, objects

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
