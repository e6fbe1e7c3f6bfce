"""Requests through the gateway: who serves them, and what arrives."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import time

from tests.demo.gateway.running import Gateway, Scene, until


def served(gateway: Gateway, path: str) -> bool:
    return gateway.ask(path).status == 200


def test_a_request_runs_through_the_pools_router_to_the_engine_that_it_picked(
    scene: Scene, gateway: Gateway
) -> None:
    pool, engine, router = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: served(gateway, path))
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
    assert line["route"] == f"models/{path.strip('/')}/0"


def test_what_no_route_matches_is_404_and_a_prefix_ends_at_a_slash(scene: Scene, gateway: Gateway) -> None:
    pool, _, _ = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: served(gateway, path))
    assert gateway.ask(f"{path}/below").status == 200
    assert gateway.ask(f"{path}beside").status == 404


def test_the_more_special_match_wins_whatever_the_order_of_rules(scene: Scene, gateway: Gateway) -> None:
    pools = {name: scene.served()[0] for name in ("wide", "long", "header", "exact")}
    path = f"/{scene.fresh('path')}"
    doc = scene.route_doc({pools["wide"]: 1}, path=path, name=scene.fresh("route"))

    def rule(match: dict[str, object], pool: str) -> dict[str, object]:
        return {**doc["spec"]["rules"][0], "matches": [match], "backendRefs": [_ref(pool)]}

    def _ref(pool: str) -> dict[str, object]:
        return {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": pool}

    tier = [{"name": "X-Tier", "value": "gold"}]
    doc["spec"]["rules"] += [
        rule({"path": {"type": "PathPrefix", "value": f"{path}/a/"}}, pools["long"]),
        rule({"path": {"value": f"{path}/a"}, "headers": tier}, pools["header"]),
        rule({"path": {"type": "Exact", "value": f"{path}/a/b"}}, pools["exact"]),
    ]
    scene.api.put(doc)
    until("the route is served", lambda: served(gateway, path))

    def pool_of(where: str, headers: dict[str, str] | None = None) -> str:
        number = scene.fresh("ask")
        assert gateway.ask(where, {"x-request-id": number, **(headers or {})}).status == 200
        return str(gateway.log(number)["pool"])

    assert pool_of(f"{path}/other") == f"models/{pools['wide']}"
    assert pool_of(f"{path}/a") == f"models/{pools['long']}"
    # The router answers by changing x-tier and asking for a new choice of route: the choice stands.
    assert pool_of(f"{path}/a", {"x-tier": "gold"}) == f"models/{pools['header']}"
    assert pool_of(f"{path}/a/b", {"x-tier": "gold"}) == f"models/{pools['exact']}"


def test_an_answer_streams_line_by_line_and_a_client_that_leaves_is_noticed(
    scene: Scene, gateway: Gateway
) -> None:
    pool, engine, _ = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: served(gateway, path))
    # Engines know /stream only, so a route of its own leads there.
    scene.route({pool: 1}, path="/stream")
    until("the stream is routed", lambda: scene.conditions("HTTPRoute", "stream").get("Accepted"))

    def begin(request_id: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        client = http.client.HTTPConnection(gateway.address, gateway.port, timeout=10)
        client.request("POST", "/stream", body=b"{}", headers={"x-request-id": request_id})
        return client, client.getresponse()

    client, answer = begin("one-stream")
    for number in range(3):
        line = f"data: {number}\n".encode()
        engine.send(line)
        assert answer.readline() == line, "each line arrives before the next is made"
    engine.send(None)
    assert answer.read() == b"" and answer.status == 200
    client.close()

    client, answer = begin("left-stream")
    engine.send(b"data: first\n")
    answer.readline()
    answer.close()
    client.close()
    until("the engine sees that the client left", lambda: engine.left == 1)
    assert "DC" in gateway.log("left-stream")["flags"]


def test_a_large_body_passes_unchanged(scene: Scene, gateway: Gateway) -> None:
    pool, _, router = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: served(gateway, path))
    body = os.urandom(24 * 1024 * 1024)
    answer = gateway.ask(path, body=body, timeout=60)
    assert answer.json()["digest"] == hashlib.sha256(body).hexdigest()
    assert router.seen[-1].bytes == len(body), "the router reads all of it"


def test_a_request_without_a_body_passes(scene: Scene, gateway: Gateway) -> None:
    pool, engine, _ = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: served(gateway, path))
    assert gateway.ask(path, method="GET").json()["engine"] == engine.name


def test_what_the_router_refuses_is_the_answer(scene: Scene, gateway: Gateway) -> None:
    pool, engine, router = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: served(gateway, path))
    before = len(engine.headers)
    router.refuse = 429
    answer = gateway.ask(path, {"x-request-id": "refused"})
    assert answer.status == 429 and answer.headers["x-llm-d-request-dropped-reason"] == "rejected-by-test"
    line = gateway.log("refused")
    assert line["dropped_reason"] == "rejected-by-test" and line["pool"] == f"models/{pool}"
    assert len(engine.headers) == before


def test_a_destination_that_does_not_listen_is_503_and_the_first_of_several_is_taken(
    scene: Scene, gateway: Gateway
) -> None:
    pool, engine, router = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: served(gateway, path))
    router.destination = f"{engine.ip}:8001"
    assert gateway.ask(path).status == 503
    router.destination = f"{engine.address},{engine.ip}:8001"
    assert gateway.ask(path).json()["engine"] == engine.name


def test_the_access_log_is_turned_by_size(scene: Scene, gateway: Gateway) -> None:
    pool, _, _ = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: served(gateway, path))
    running = Gateway(
        scene.api, scene.stage, gateway.folder / "small", ["--access-log-bytes=4096"], front=scene.front
    )
    try:
        running.wait_ready()
        number, end = 0, time.monotonic() + 30
        older = running.access_log.with_name("access.jsonl.3")
        while not older.exists() and time.monotonic() < end:
            number += 1
            running.ask(path, {"x-request-id": f"turn-{number}"})
        assert older.exists()
        until("lines go on in the new file", lambda: running.access_log.exists())
        names = {each.name for each in running.folder.glob("access.jsonl*")}
        assert names == {"access.jsonl", *(f"access.jsonl.{old}" for old in (1, 2, 3))}
    finally:
        running.stop()
    text = older.read_text()
    assert all(json.loads(line)["status"] == 200 for line in text.splitlines())
