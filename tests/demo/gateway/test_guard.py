"""The header guard: what clients may say, and what probes may."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.demo.gateway import manifests
from deploy.demo.gateway.names import GUARDED, ROUTER_ONLY
from tests.demo.gateway.running import SECRET, Gateway, Scene, until

PINNED = {name: f"client-{number}" for number, name in enumerate(GUARDED)}
FORGED = {name: "127.66.66.66:8000" for name in ROUTER_ONLY}


def route(scene: Scene, gateway: Gateway, **more: object) -> tuple[str, dict[str, object]]:
    """A served route, and what its router and engine see of headers in one dictionary that fills."""
    pool, engine, router = scene.served()
    path = scene.route({pool: 1}, **more)
    until("the route is served", lambda: gateway.serves(path))
    return path, {"engine": engine, "router": router}


def seen(backends: dict[str, object]) -> tuple[dict[str, str], dict[str, str]]:
    return backends["router"].seen[-1].headers, backends["engine"].headers[-1]  # type: ignore[attr-defined]


def test_with_the_guard_neither_router_nor_engine_sees_what_a_client_pins(
    scene: Scene, gateway: Gateway
) -> None:
    path, backends = route(scene, gateway, guard=True)
    assert gateway.ask(path, PINNED).status == 200
    for headers in seen(backends):
        assert not headers.keys() & set(GUARDED)


def test_without_the_guard_a_client_can_pin(scene: Scene, gateway: Gateway) -> None:
    """It is the route that guards, so a route without guard is seen to leave the door open."""
    path, backends = route(scene, gateway, guard=False)
    assert gateway.ask(path, PINNED).status == 200
    for headers in seen(backends):
        assert headers.items() >= PINNED.items()


def test_a_guard_may_stamp_instead_of_removing(scene: Scene, gateway: Gateway) -> None:
    path, backends = route(scene, gateway, guard=True, objective="standard", fairness="100% ours")
    assert gateway.ask(path, PINNED).status == 200
    for headers in seen(backends):
        assert headers["x-llm-d-inference-objective"] == "standard"
        assert headers["x-llm-d-inference-fairness-id"] == "100% ours"
        assert "x-disagg-revision" not in headers and "x-gateway-inference-objective" not in headers


def test_guard_and_no_guard_follow_the_route_while_it_is_served(scene: Scene, gateway: Gateway) -> None:
    pool, engine, _ = scene.served()
    path = scene.route({pool: 1}, guard=True)
    until("the route is served", lambda: gateway.serves(path))

    def pins() -> bool:
        gateway.ask(path, PINNED)
        return "x-disagg-revision" in engine.headers[-1]

    assert not pins()
    scene.route({pool: 1}, path=path, guard=False)
    until("the guard is off", pins)
    scene.route({pool: 1}, path=path, guard=True)
    until("the guard is on", lambda: not pins())


def test_probes_pin_on_their_own_port_and_the_secret_stays_in_the_gateway(
    scene: Scene, gateway: Gateway
) -> None:
    path, backends = route(scene, gateway, guard=True, objective="standard")
    assert gateway.ask(path, {**PINNED, "x-request-id": "a-probe"}, probe=True).status == 200
    for headers in seen(backends):
        assert headers.items() >= PINNED.items(), "also where the route would stamp"
        assert "x-lockstep-probe" not in headers
    assert gateway.log("a-probe")["listener"] == "probe"
    assert gateway.log("a-probe")["revision_asked"] == PINNED["x-disagg-revision"]
    assert SECRET not in gateway.access_log.read_text()


def test_other_edits_of_a_route_hold_for_probes_too(scene: Scene, gateway: Gateway) -> None:
    pool, engine, _ = scene.served()
    path = f"/{scene.fresh('path')}"
    doc = scene.route_doc({pool: 1}, path=path)
    edits = {
        "set": [{"name": "x-set", "value": "by-route"}],
        "add": [{"name": "x-add", "value": "by-route"}],
        "remove": ["x-remove", "x-disagg-revision"],
    }
    doc["spec"]["rules"][0]["filters"] = [{"type": "RequestHeaderModifier", "requestHeaderModifier": edits}]
    scene.api.put(doc)
    until("the route is served", lambda: gateway.serves(path))
    sent = {"x-set": "mine", "x-add": "mine", "x-remove": "mine", "x-disagg-revision": "abc"}
    for probe in (False, True):
        assert gateway.ask(path, sent, probe=probe).status == 200
        headers = engine.headers[-1]
        assert headers["x-set"] == "by-route" and "x-remove" not in headers
        assert headers["x-add"] == "mine,by-route"
        assert ("x-disagg-revision" in headers) is probe


@pytest.mark.parametrize("sent", [{}, {"x-lockstep-probe": "wrong"}, {"x-lockstep-probe": ""}])
def test_the_probe_port_refuses_who_does_not_know_the_secret(
    scene: Scene, gateway: Gateway, sent: dict[str, str]
) -> None:
    path, backends = route(scene, gateway)
    before = len(backends["router"].seen)  # type: ignore[attr-defined]
    answer = gateway.http.request("POST", gateway.url(path, probe=True), headers=sent, body=b"{}")
    assert answer.status == 403
    assert len(backends["router"].seen) == before  # type: ignore[attr-defined]


def test_the_secret_opens_nothing_on_the_public_port(scene: Scene, gateway: Gateway) -> None:
    path, backends = route(scene, gateway, guard=True)
    assert gateway.ask(path, {**PINNED, "x-lockstep-probe": SECRET}).status == 200
    for headers in seen(backends):
        assert not headers.keys() & {*GUARDED, "x-lockstep-probe"}


def test_without_a_configured_secret_the_probe_port_asks_for_none(
    scene: Scene, tmp_path: Path, gateway: Gateway
) -> None:
    path, backends = route(scene, gateway, guard=True)
    running = Gateway(scene.api, scene.stage, tmp_path, secret="", front=scene.front)
    try:
        running.wait_ready()
        answer = running.http.request("POST", running.url(path, probe=True), headers=PINNED, body=b"{}")
        assert answer.status == 200
        assert seen(backends)[0].items() >= PINNED.items()
    finally:
        running.stop()


@pytest.mark.parametrize("guard", [True, False])
@pytest.mark.parametrize("probe", [True, False])
def test_nobody_may_send_what_only_routers_set(
    scene: Scene, gateway: Gateway, guard: bool, probe: bool
) -> None:
    path, backends = route(scene, gateway, guard=guard)
    envoys = {
        "x-envoy-original-path": "/elsewhere",
        "x-envoy-upstream-rq-timeout-ms": "1",
        "x-envoy-any": "1",
    }
    assert gateway.ask(path, {**FORGED, **envoys}, probe=probe).status == 200
    at_router, at_engine = seen(backends)
    assert not at_router.keys() & {*FORGED, *envoys}
    assert "127.66.66.66:8000" not in at_engine.values() and not at_engine.keys() & envoys.keys()


def test_a_fail_open_pool_without_router_takes_no_destination_from_a_client(
    scene: Scene, gateway: Gateway
) -> None:
    engine, other = scene.engine(), scene.engine()
    pool = scene.pool(engines=[engine], fail_open=True)
    path = scene.route({pool: 1})
    until("the route is served", lambda: gateway.serves(path))
    said = gateway.ask(path, {"x-gateway-destination-endpoint": other.address}).json()
    assert said["engine"] == engine.name


def test_the_guard_of_the_manifests_names_every_alias() -> None:
    removed = manifests.header_guard()["requestHeaderModifier"]["remove"]
    assert set(removed) == set(GUARDED)
