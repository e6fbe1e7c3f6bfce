"""Requests through a real Envoy: who serves them, and what arrives."""

from __future__ import annotations

from collections import Counter

from tests.demo.gateway.running import Gateway, Scene, until


def test_a_request_runs_through_the_pools_router_to_the_engine_that_it_picked(
    scene: Scene, gateway: Gateway
) -> None:
    pool, engine, router = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: gateway.ask(path).status == 200)
    answer = gateway.ask(f"{path}/v1/completions?x=1", {"x-request-id": "the-first"})
    said = answer.json()
    assert said["engine"] == engine.name and said["path"] == f"{path}/v1/completions?x=1"
    assert said["headers"]["x-prefiller-host-port"] == router.prefiller
    assert answer.headers["x-disagg-revision"] == f"revision-of-{engine.name}"
    assert answer.headers["x-served-by"] == router.name, "the router sees responses too"
    line = gateway.log("the-first")
    assert line["pool"] == f"models/{pool}" and line["destination"] == line["engine"] == engine.address
    assert line["prefiller"] == router.prefiller and line["status"] == 200 and line["listener"] == "public"
    assert line["revision_served"] == f"revision-of-{engine.name}"
