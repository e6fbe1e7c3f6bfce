"""The life of the program: when it is ready, what ends with it, and what it says when it cannot go on."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import urllib3

from deploy.demo.gateway import manifests
from tests.demo.gateway.running import GATEWAY, Gateway, Scene, staged, until


@pytest.fixture
def of_envoy(front: str) -> None:
    """Of a child process, which the small proxy does not have."""
    if front != "envoy":
        pytest.skip("the small proxy is no process of its own")


@contextmanager
def gateway_of(scene: Scene, folder: Path, *more: str) -> Iterator[Gateway]:
    running = Gateway(scene.api, scene.stage, folder, more, front=scene.front)
    try:
        yield running
    finally:
        running.stop()


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_sigterm_ends_it_and_what_it_started_with_status_0(scene: Scene, tmp_path: Path) -> None:
    with gateway_of(scene, tmp_path) as gateway:
        children = psutil.Process(gateway.wait_ready().process.pid).children()
        assert len(children) == (1 if scene.front == "envoy" else 0)
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(10) == 0
        until("nothing is left", lambda: all(gone(child) for child in children))


def test_sigterm_does_not_wait_for_an_answer_without_end(scene: Scene, tmp_path: Path) -> None:
    with gateway_of(scene, tmp_path) as gateway:
        gateway.wait_ready()
        pool, engine, router = scene.served()
        path = scene.route({pool: 1})
        until("the route is served", lambda: gateway.engine_of(path) == engine.name)
        router.hold()
        with ThreadPoolExecutor(1) as clients:
            waiting = clients.submit(gateway.ask, path)
            until("it waits in the router", lambda: router.waiting == 1)
            gateway.process.send_signal(signal.SIGTERM)
            assert gateway.process.wait(5) == 0
            assert isinstance(waiting.exception(10), urllib3.exceptions.HTTPError)
        router.release()


def test_envoy_ends_even_when_the_controller_is_killed(scene: Scene, tmp_path: Path, of_envoy: None) -> None:
    with gateway_of(scene, tmp_path) as gateway:
        envoy = gateway.wait_ready().envoy()
        gateway.process.kill()
        gateway.process.wait(10)
        until("envoy is gone", lambda: gone(envoy))


def test_when_envoy_dies_the_controller_ends_and_names_it(
    scene: Scene, tmp_path: Path, of_envoy: None
) -> None:
    with gateway_of(scene, tmp_path) as gateway:
        gateway.wait_ready().envoy().kill()
        assert gateway.process.wait(10) == 1
        assert gateway.output.read_text().splitlines()[-1] == "gateway: envoy ended by SIGKILL"


def test_a_taken_port_is_named(scene: Scene, tmp_path: Path) -> None:
    address = scene.stage.address()
    with socket.socket() as taken:
        taken.bind((address, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with gateway_of(scene, tmp_path, f"--address={address}", f"--port={port}") as gateway:
            assert gateway.process.wait(20) == 1
            assert f"{address}:{port}" in gateway.output.read_text()


BAD_OPTIONS = [
    (["--context=unknown"], "no context 'unknown'"),
    (["--probe-secret-file=/dev/null"], "is empty"),
]
BAD_PROGRAMS = [
    (["--envoy=/nowhere/envoy"], "/nowhere/envoy"),
    (["--envoy=/bin/false"], "envoy ended with status 1"),
]


@pytest.mark.parametrize(("options", "said"), BAD_PROGRAMS)
def test_an_envoy_that_it_cannot_run_is_named(
    scene: Scene, tmp_path: Path, options: list[str], said: str, of_envoy: None
) -> None:
    test_what_it_cannot_start_with_is_named(scene, tmp_path, options, said)


@pytest.mark.parametrize(("options", "said"), BAD_OPTIONS)
def test_what_it_cannot_start_with_is_named(
    scene: Scene, tmp_path: Path, options: list[str], said: str
) -> None:
    with gateway_of(scene, tmp_path, *options) as gateway:
        assert gateway.process.wait(20) == 1
        assert said in gateway.output.read_text().splitlines()[-1]


def test_it_waits_for_the_api_and_for_its_gateway(front: str, tmp_path: Path) -> None:
    with staged(front) as scene:
        scene.api.delete("Gateway", *GATEWAY)
        # Its current context leads nowhere.
        with gateway_of(scene, tmp_path / "deaf", "--context=nowhere") as deaf:
            until("it says what it misses", lambda: "cannot follow" in deaf.output.read_text())
            assert not deaf.ready()
            deaf.process.send_signal(signal.SIGTERM)
            assert deaf.process.wait(10) == 0, "also while it waits"
        with gateway_of(scene, tmp_path / "other") as gateway:
            gateway.wait_ready()  # of a configuration without listeners
            with pytest.raises(urllib3.exceptions.NewConnectionError):
                gateway.ask("/")
            pool, engine, _ = scene.served()
            path = scene.route({pool: 1})
            scene.api.put(manifests.gateway(GATEWAY[1], GATEWAY[0]))

            def serves() -> bool:
                try:
                    return gateway.engine_of(path) == engine.name
                except urllib3.exceptions.NewConnectionError:
                    return False

            until("the new gateway is served", serves)
            scene.api.delete("GatewayClass", "", "lockstep-demo")
            until("a gateway of no class is not served", lambda: not _connects(gateway))


def test_requests_go_on_while_the_api_is_away(front: str, tmp_path: Path) -> None:
    with staged(front) as scene, gateway_of(scene, tmp_path) as gateway:
        gateway.wait_ready()
        pool, engine, _ = scene.served()
        path = scene.route({pool: 1})
        until("the route is served", lambda: gateway.engine_of(path) == engine.name)
        scene.api.stop()
        until("the controller has noticed", lambda: "cannot follow" in gateway.output.read_text())
        assert gateway.engine_of(path) == engine.name
        scene.api.start()
        scene.route({pool: 1}, path=path, guard=False)
        until(
            "changes are served again",
            lambda: gateway.ask(path, {"x-disagg-revision": "a"}).json()["headers"].get("x-disagg-revision"),
        )


def _connects(gateway: Gateway) -> bool:
    try:
        gateway.ask("/")
    except urllib3.exceptions.HTTPError:
        return False
    return True
