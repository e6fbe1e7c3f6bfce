"""Weights over pools: one draw decides router, header edits and engine together."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.demo.gateway.running import Gateway, Scene, until


def test_ninety_to_ten_and_never_the_router_of_one_pool_with_the_engine_of_another(
    scene: Scene, gateway: Gateway
) -> None:
    (old, old_engine, old_router), (new, new_engine, new_router) = scene.served(), scene.served()
    path = scene.route({old: 90, new: 10})
    doc = scene.route_doc({old: 90, new: 10}, path=path)
    for place, ref in enumerate(doc["spec"]["rules"][0]["backendRefs"]):
        stamp = {"set": [{"name": "x-share", "value": f"share-{place} of 100%"}]}
        ref["filters"] = [{"type": "RequestHeaderModifier", "requestHeaderModifier": stamp}]
    scene.api.put(doc)
    until("shares are stamped", lambda: "x-share" in _headers(gateway, path))
    for router in (old_router, new_router):
        router.seen.clear()
    # The routers ask for a new choice of route on every request; a second draw would pair 18 of 100 wrongly.
    with ThreadPoolExecutor(8) as asking:
        seen = Counter(asking.map(lambda _: _path_taken(gateway, path), range(600)))
    right = {
        (old_engine.name, old_router.name, "share-0 of 100%"),
        (new_engine.name, new_router.name, "share-1 of 100%"),
    }
    assert set(seen) == right
    assert len(old_router.seen) + len(new_router.seen) == 600, "each request asks one router"
    # 600 draws of 10 %: 60 ± 7.3; five standard deviations.
    assert 23 <= len(new_router.seen) <= 97
    stamped = {each.headers["x-share"] for each in new_router.seen}
    assert stamped == {"share-1 of 100%"}, "the router sees the edits of its share"


def test_a_weight_of_zero_gets_nothing_and_a_change_is_active_within_a_second(
    scene: Scene, gateway: Gateway
) -> None:
    (old, old_engine, _), (new, new_engine, _) = scene.served(), scene.served()
    path = scene.route({old: 1, new: 0})
    until("the route is served", lambda: gateway.ask(path).status == 200)
    assert {_headers(gateway, path, "engine") for _ in range(40)} == {old_engine.name}
    times = []
    for weights, engine in (({old: 0, new: 1}, new_engine), ({old: 1, new: 0}, old_engine)) * 3:
        begun = time.monotonic()
        scene.route(weights, path=path)
        until("the other pool serves", lambda e=engine: _headers(gateway, path, "engine") == e.name)
        times.append(time.monotonic() - begun)
        assert {_headers(gateway, path, "engine") for _ in range(10)} == {engine.name}
    assert max(times) < 1.0, times


def test_all_weights_zero_is_500(scene: Scene, gateway: Gateway) -> None:
    pool, _, _ = scene.served()
    path = scene.route({pool: 0})
    until("the rule is served", lambda: gateway.ask(path).status == 500)


def test_a_reference_to_nowhere_keeps_its_share_and_is_answered_500(scene: Scene, gateway: Gateway) -> None:
    pool, _, _ = scene.served()
    path = scene.route({pool: 1, "not-there": 1})
    until("the rule is served", lambda: gateway.ask(path).status in {200, 500})
    seen = Counter(gateway.ask(path).status for _ in range(200))
    assert set(seen) == {200, 500} and 60 <= seen[500] <= 140
    resolved = scene.conditions("HTTPRoute", path.strip("/"))["ResolvedRefs"]
    assert (resolved["status"], resolved["reason"]) == ("False", "BackendNotFound")


def _headers(gateway: Gateway, path: str, part: str = "headers") -> object:
    answer = gateway.ask(path)
    return answer.json()[part] if answer.status == 200 else {}


def _path_taken(gateway: Gateway, path: str) -> tuple[str, str, str]:
    answer = gateway.ask(path)
    said = answer.json()
    assert answer.headers["x-served-by"] == said["headers"]["x-routed-by"]
    return said["engine"], said["headers"]["x-routed-by"], said["headers"]["x-share"]
