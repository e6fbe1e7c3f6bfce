"""Requests that do not end well, and spellings: the same on Envoy and on the small proxy."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.demo.gateway.backends import Engine, Router
from tests.demo.gateway.running import Gateway, Scene, until

RESET = "upstream connect error or disconnect/reset before headers"


def routed(scene: Scene, gateway: Gateway) -> tuple[str, Engine, Router]:
    """A served route with its engine and router."""
    pool, engine, router = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: gateway.engine_of(path) == engine.name)
    return path, engine, router


def streamed(scene: Scene, gateway: Gateway) -> tuple[Engine, Router]:
    """An engine and router behind /stream, which is what engines stream on."""
    pool, engine, router = scene.served()
    scene.route({pool: 1}, path="/stream")

    def first_line() -> bool:
        with socket.create_connection((gateway.address, gateway.port), timeout=0.5) as client:
            client.sendall(b"POST /stream HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
            engine.send(b"data: up\n")
            try:
                return router.name.encode() in client.recv(4096)
            except TimeoutError:
                return False

    until("the stream is routed", first_line)
    until("nobody reads", lambda: router.open == 0)
    while not engine._lines.empty():
        engine._lines.get_nowait()
    return engine, router


def begun(gateway: Gateway, engine: Engine, request_id: str) -> http.client.HTTPResponse:
    """A streamed answer whose first line has arrived."""
    client = http.client.HTTPConnection(gateway.address, gateway.port, timeout=10)
    client.request("POST", "/stream", body=b"{}", headers={"x-request-id": request_id})
    engine.send(b"data: first\n")
    answer = client.getresponse()
    assert answer.status == 200 and answer.readline() == b"data: first\n"
    return answer


def test_an_engine_that_is_not_there_is_503_which_the_router_stamps(scene: Scene, gateway: Gateway) -> None:
    path, engine, router = routed(scene, gateway)
    router.destination = f"{engine.ip}:8001"
    answer = gateway.ask(path, {"x-request-id": f"gone{path}"})
    assert answer.status == 503 and answer.data.decode().startswith(RESET)
    assert answer.headers["x-served-by"] == router.name, "the router sees this answer too"
    line = gateway.log(f"gone{path}")
    assert "UF" in line["flags"] and line["destination"] == f"{engine.ip}:8001"
    until("the router has done with it", lambda: router.open == 0)


def test_an_engine_that_dies_before_it_answers_is_503(scene: Scene, gateway: Gateway) -> None:
    path, engine, router = routed(scene, gateway)
    engine.dying = True
    answer = gateway.ask(path, {"x-request-id": f"died{path}"})
    assert answer.status == 503 and answer.data.decode().startswith(RESET)
    assert "UC" in gateway.log(f"died{path}")["flags"]
    engine.dying = False
    assert gateway.ask(path).status == 200


@pytest.mark.parametrize("destination", ["nobody", "engine.example:8000", "127.0.0.1:99999", ""])
def test_a_destination_that_is_no_address_is_503(scene: Scene, gateway: Gateway, destination: str) -> None:
    path, _, router = routed(scene, gateway)
    router.destination = destination
    answer = gateway.ask(path)
    assert answer.status == 503 and answer.data == b"no healthy upstream"


def test_an_engine_killed_in_the_middle_is_a_broken_answer_not_a_short_one(
    scene: Scene, gateway: Gateway
) -> None:
    engine, router = streamed(scene, gateway)
    answer = begun(gateway, engine, "cut-stream")
    engine.cut()
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        answer.read()
    line = gateway.log("cut-stream")
    assert line["status"] == 200 and line["flags"] in {"UC", "UPE"}
    until("the router has done with it", lambda: router.open == 0)
    begun(gateway, engine, "next-stream").close()


def test_a_router_that_goes_in_the_middle_of_an_answer_breaks_it_off(scene: Scene, gateway: Gateway) -> None:
    engine, router = streamed(scene, gateway)
    answer = begun(gateway, engine, "no-router")
    router.close()
    engine.send(b"data: second\n")
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        answer.read()
    until("the engine sees that nobody reads on", lambda: engine.left >= 1)


def test_a_router_that_goes_while_a_request_waits_is_503(scene: Scene, gateway: Gateway) -> None:
    path, engine, router = routed(scene, gateway)
    before = len(engine.headers)
    router.hold()
    with ThreadPoolExecutor(1) as clients:
        waiting = clients.submit(gateway.ask, path)
        until("it waits in the router", lambda: router.waiting == 1)
        router.close()
        assert waiting.result(10).status == 503
    assert len(engine.headers) == before


def test_a_client_that_leaves_the_queue_is_forgotten_by_the_router(scene: Scene, gateway: Gateway) -> None:
    path, engine, router = routed(scene, gateway)
    before = len(engine.headers)
    router.hold()
    with socket.create_connection((gateway.address, gateway.port)) as client:
        client.sendall(
            f"POST {path} HTTP/1.1\r\nhost: a\r\nx-request-id: left{path}\r\ncontent-length: 2\r\n\r\n{{}}".encode()
        )
        until("it waits in the router", lambda: router.waiting == 1)
    until("the router knows", lambda: router.waiting == 0 and router.open == 0)
    assert "DC" in gateway.log(f"left{path}")["flags"]
    router.release()
    assert gateway.ask(path).status == 200 and len(engine.headers) == before + 1


def test_a_large_body_can_be_refused(scene: Scene, gateway: Gateway) -> None:
    path, engine, router = routed(scene, gateway)
    router.refuse = 503
    answer = gateway.ask(path, body=os.urandom(3_000_000))
    assert answer.status == 503
    assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-by-test"


def test_routes_change_under_load_and_no_request_is_lost(scene: Scene, gateway: Gateway) -> None:
    (old, old_engine, _), (new, new_engine, _) = scene.served(), scene.served()
    path = scene.route({old: 1, new: 0})
    until("the route is served", lambda: gateway.engine_of(path) == old_engine.name)
    over = threading.Event()

    def ask_on() -> Counter[object]:
        seen: Counter[object] = Counter()
        while not over.is_set():
            answer = gateway.ask(path)
            seen[answer.json()["engine"] if answer.status == 200 else answer.status] += 1
        return seen

    with ThreadPoolExecutor(4) as clients:
        asking = [clients.submit(ask_on) for _ in range(4)]
        try:
            for number in range(6):
                pools = {old: number % 2, new: 1 - number % 2}
                scene.route(pools, path=path, guard=number % 3 == 0)
                now = old_engine if number % 2 else new_engine
                until("the change is served", lambda e=now: gateway.engine_of(path) == e.name)
                time.sleep(0.05)
        finally:
            over.set()
        seen: Counter[object] = sum((each.result(10) for each in asking), Counter())
    assert set(seen) == {old_engine.name, new_engine.name}, seen


SPELLINGS = {
    "/a/../b": "/b",
    "/./a//b": "/a/b",
    "//a///b/": "/a/b/",
    "/a/%2e%2E/b": "/b",
    "/a\\b": "/a/b",
    "/%61%2Fb%20c": "/a%2Fb%20c",
    "/a/..": "/",
    "/../../a": "/a",
    "/a?b=../c//d%61": "/a?b=../c//d%61",
}


@pytest.mark.parametrize("sent", SPELLINGS)
def test_a_path_has_one_spelling_before_routes_are_chosen(scene: Scene, gateway: Gateway, sent: str) -> None:
    path, _, _ = routed(scene, gateway)
    other, _, _ = routed(scene, gateway)
    reached = SPELLINGS[sent]
    prefix = other if sent.startswith("/../") else path
    lead = f"{path}/.." if sent.startswith("/../") else ""
    with socket.create_connection((gateway.address, gateway.port), timeout=10) as client:
        target = f"{lead}{other}{sent[6:]}" if lead else f"{path}{sent}"
        client.sendall(f"GET {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert answer.status == 200
        assert json.loads(answer.read())["path"] == prefix + reached


def test_what_an_answer_and_a_request_carry_beside_what_was_sent(scene: Scene, gateway: Gateway) -> None:
    path, engine, _ = routed(scene, gateway)
    answer = gateway.ask(
        path, {"connection": "close", "keep-alive": "timeout=5", "x-forwarded-for": "192.0.2.1"}
    )
    assert answer.headers.getlist("set-cookie") == ["a=1", "b=2"]
    headers = engine.headers[-1]
    assert answer.headers["x-request-id"] == headers["x-request-id"] and len(headers["x-request-id"]) > 20
    before, client = headers["x-forwarded-for"].split(",")
    assert before == "192.0.2.1" and ipaddress.ip_address(client) and headers["x-forwarded-proto"] == "http"
    assert headers["host"] == f"{gateway.address}:{gateway.port}"
    assert not headers.keys() & {"keep-alive", "expect"}
    assert gateway.ask("/nowhere", {"x-request-id": "mine"}).headers["x-request-id"] == "mine"


def test_a_body_in_chunks_and_one_that_waits_to_be_asked_for(scene: Scene, gateway: Gateway) -> None:
    path, engine, router = routed(scene, gateway)
    said = gateway.ask(path, body=iter([b"one", b"two"])).json()
    assert router.seen[-1].bytes == 6 and said["engine"] == engine.name
    with socket.create_connection((gateway.address, gateway.port), timeout=10) as client:
        head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\nexpect: 100-continue\r\n\r\n"
        client.sendall(head.encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 100 Continue\r\n")
        client.sendall(b"abcdef")
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
    assert router.seen[-1].bytes == 6 and "expect" not in engine.headers[-1]


def test_a_head_request_has_an_answer_without_a_body(scene: Scene, gateway: Gateway) -> None:
    path, engine, router = routed(scene, gateway)
    answer = gateway.ask(path, method="HEAD")
    assert answer.status == 200 and answer.data == b"" and answer.headers["x-served-by"] == router.name
