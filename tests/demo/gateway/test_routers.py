"""Routers that come, go and fail."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from tests.demo.gateway.running import Gateway, Scene, until


def test_without_a_ready_router_a_pool_that_fails_closed_is_503(scene: Scene, gateway: Gateway) -> None:
    engine = scene.engine()
    router = scene.router(engine.address)
    pool = scene.pool(engines=[engine])
    path = scene.route({pool: 1})
    until("the route is served", lambda: gateway.ask(path).status == 503)
    scene.router_pod(pool, router, ready=False)
    assert gateway.ask(path, {"x-request-id": "nobody"}).status == 503
    line = gateway.log("nobody")
    assert line["status"] == 503 and line["engine"] is None and line["pool"] == f"models/{pool}"
    begun = time.monotonic()
    scene.router_pod(pool, router)
    until("the ready router is used", lambda: gateway.ask(path).status == 200)
    assert time.monotonic() - begun < 1.0
    assert len(engine.headers) == len(router.seen)


def test_without_a_ready_router_a_pool_that_fails_open_goes_round_its_ready_engines(
    scene: Scene, gateway: Gateway
) -> None:
    first, second, unready = scene.engine(), scene.engine(), scene.engine()
    pool = scene.pool(engines=[first, second], fail_open=True)
    scene.pod(unready.name, unready.ip, {"engines-of": pool}, ready=False)
    path = scene.route({pool: 1})
    until("the route is served", lambda: gateway.ask(path).status == 200)
    served = [gateway.ask(path).json()["engine"] for _ in range(10)]
    assert served.count(first.name) == served.count(second.name) == 5
    router = scene.router(unready.address)
    scene.router_pod(pool, router)
    until("the router decides", lambda: gateway.engine_of(path) == unready.name)
    # Dead, but still ready in the API. Only a request without a body is sure to pass: Envoy does not fail open
    # once it has begun to stream a body to the router (most others are 503 until the pod is seen as not ready).
    router.close()
    asked = {gateway.ask(path, method="GET").json()["engine"] for _ in range(4)}
    assert asked == {first.name, second.name}
    scene.router_pod(pool, router, ready=False)
    scene.pod(first.name, first.ip, {"engines-of": pool}, ready=False)
    until(
        "only the second engine is left",
        lambda: {gateway.engine_of(path) for _ in range(4)} == {second.name},
    )


def test_a_dead_router_that_still_counts_as_ready_is_503_where_the_pool_fails_closed(
    scene: Scene, gateway: Gateway
) -> None:
    pool, engine, router = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: gateway.ask(path).status == 200)
    before = len(engine.headers)
    router.close()
    assert gateway.ask(path).status == 503
    assert len(engine.headers) == before


def test_a_new_address_is_used_at_once_and_requests_in_the_old_routers_queue_finish(
    scene: Scene, gateway: Gateway
) -> None:
    pool, engine, router = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: gateway.ask(path).status == 200)
    router.hold()
    with ThreadPoolExecutor(4) as clients:
        waiting = [clients.submit(gateway.ask, path, body=b"x" * 200_000) for _ in range(4)]
        until("four wait in the router", lambda: router.waiting == 4)
        successor = scene.router(engine.address)
        begun = time.monotonic()
        scene.router_pod(pool, router, deletionTimestamp="2030-01-01T00:00:00Z")
        scene.router_pod(pool, successor)
        until("the successor is asked", lambda: successor.seen or gateway.engine_of(path))
        assert time.monotonic() - begun < 1.0
        taken = len(router.seen)
        for _ in range(10):
            assert gateway.ask(path).headers["x-served-by"] == successor.name
        assert len(router.seen) == taken, "the old one gets nothing new"
        router.release()
        answers = [each.result(10) for each in waiting]
    assert [each.status for each in answers] == [200] * 4
    assert {each.headers["x-served-by"] for each in answers} == {router.name}


def test_a_request_in_a_queue_finishes_when_its_route_goes_to_another_pool(
    scene: Scene, gateway: Gateway
) -> None:
    (old, old_engine, old_router), (new, new_engine, _) = scene.served(), scene.served()
    path = scene.route({old: 1})
    until("the route is served", lambda: gateway.ask(path).status == 200)
    old_router.hold()
    with ThreadPoolExecutor(1) as clients:
        waiting = clients.submit(gateway.ask, path)
        until("it waits in the router", lambda: old_router.waiting == 1)
        scene.route({new: 1}, path=path)
        until("the other pool serves", lambda: gateway.engine_of(path) == new_engine.name)
        old_router.release()
        answer = waiting.result(10)
    assert answer.status == 200 and answer.json()["engine"] == old_engine.name


def test_of_two_ready_routers_both_are_asked(scene: Scene, gateway: Gateway) -> None:
    engine = scene.engine()
    routers = [scene.router(engine.address) for _ in range(2)]
    pool = scene.pool(routers)
    path = scene.route({pool: 1})
    until("the route is served", lambda: gateway.ask(path).status == 200)
    for _ in range(10):
        gateway.ask(path)
    assert all(router.seen for router in routers)


def test_a_lost_watch_is_taken_up_again(scene: Scene, gateway: Gateway) -> None:
    (old, _, _), (new, engine, _) = scene.served(), scene.served()
    path = scene.route({old: 1})
    until("the route is served", lambda: gateway.ask(path).status == 200)
    scene.api.end_watches()
    scene.route({new: 1}, path=path)  # while nobody watches: only a new list shows it
    until("the change is served", lambda: gateway.engine_of(path) == engine.name)
