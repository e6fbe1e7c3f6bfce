"""The controller against a real API server: the real definitions, exactly the rights of the manifests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.demo.gateway import manifests
from deploy.rig import Rig, service_account
from deploy.rig.api import ApiError
from tests.demo.gateway.backends import Engine, Router
from tests.demo.gateway.running import GATEWAY, NAMESPACE, Gateway, until
from tests.demo.gateway.stage import Stage

Doc = dict[str, Any]
pytestmark = pytest.mark.rig

ACCOUNT = ("lockstep-system", "gateway")


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig(run_lws=False, path_crds=True, identities=[service_account("gateway", *ACCOUNT)]) as made:
        names = {ACCOUNT[0], NAMESPACE, GATEWAY[0]}
        made.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names])
        made.apply(manifests.rights(*ACCOUNT))
        made.apply([manifests.gateway_class(), manifests.gateway(GATEWAY[1], GATEWAY[0])])
        yield made


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def pod(rig: Rig, name: str, labels: dict[str, str], port: int) -> str:
    """Create a pod and return its address when it is ready."""
    container = {
        "name": "main",
        "image": "registry.example/any:1",
        "ports": [{"name": "serve", "containerPort": port}],
    }
    meta = {"name": name, "namespace": NAMESPACE, "labels": labels}
    rig.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}})

    def address() -> str:
        status = rig.client().get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}").get("status", {})
        ready = any(
            each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", [])
        )
        return str(status.get("podIP", "")) if ready else ""

    return until(f"{name} is ready", address, 30)


def pool(name: str) -> list[Doc]:
    """A pool and its router Service."""
    meta = {"name": name, "namespace": NAMESPACE}
    return [
        {
            "apiVersion": "inference.networking.k8s.io/v1",
            "kind": "InferencePool",
            "metadata": meta,
            "spec": {
                "selector": {"matchLabels": {"engines-of": name}},
                "targetPorts": [{"number": 8000}],
                "endpointPickerRef": {"name": f"{name}-epp", "port": {"number": 9002}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**meta, "name": f"{name}-epp"},
            "spec": {
                "selector": {"router-of": name},
                "ports": [{"name": "grpc", "port": 9002, "targetPort": "serve"}],
            },
        },
    ]


def test_a_route_is_served_and_every_status_is_taken_by_the_real_definitions(
    rig: Rig, stage: Stage, tmp_path: Path
) -> None:
    rig.apply(pool("chat"))
    engine = Engine(stage, "the-engine", ip=pod(rig, "engine", {"engines-of": "chat"}, 8000))
    router = Router(stage, "router-1", engine.address, ip=pod(rig, "router-1", {"router-of": "chat"}, 9002))
    route = manifests.http_route(
        "chat",
        NAMESPACE,
        gateway=GATEWAY[1],
        gateway_namespace=GATEWAY[0],
        pools={"chat": 1},
        objective="standard",
    )
    rig.apply(route)
    running = Gateway(rig.kubeconfig("gateway"), stage, tmp_path)
    try:
        running.wait_ready()
        assert running.engine_of("/v1/models") == engine.name, "ready means served"
        running.ask("/", {"x-llm-d-inference-objective": "mine", "x-disagg-revision": "mine"})
        assert engine.headers[-1]["x-llm-d-inference-objective"] == "standard"
        assert "x-disagg-revision" not in router.seen[-1].headers

        base = "/apis/gateway.networking.k8s.io/v1"
        paths = {
            "class": f"{base}/gatewayclasses/{manifests.CLASS}",
            "gateway": f"{base}/namespaces/{GATEWAY[0]}/gateways/{GATEWAY[1]}",
            "route": f"{base}/namespaces/{NAMESPACE}/httproutes/chat",
            "pool": f"/apis/inference.networking.k8s.io/v1/namespaces/{NAMESPACE}/inferencepools/chat",
        }

        def states(what: str) -> set[tuple[str, str]]:
            status = rig.client().get(paths[what]).get("status", {})
            lists = [status, *status.get("parents", [])]
            return {(each["type"], each["status"]) for part in lists for each in part.get("conditions") or []}

        good = {("Accepted", "True"), ("ResolvedRefs", "True")}
        until("the class is accepted", lambda: ("Accepted", "True") in states("class"))
        until("the gateway is programmed", lambda: ("Programmed", "True") in states("gateway"))
        until("the route is accepted", lambda: states("route") == good)
        until("the pool is accepted", lambda: states("pool") == good)
        written = {
            what: rig.client().get(path)["metadata"]["resourceVersion"] for what, path in paths.items()
        }

        second = Router(
            stage, "router-2", engine.address, ip=pod(rig, "router-2", {"router-of": "chat"}, 9002)
        )
        rig.client().delete(f"/api/v1/namespaces/{NAMESPACE}/pods/router-1")
        router.close()

        def by_second() -> bool:
            answer = running.ask("/")
            return answer.status == 200 and answer.headers["x-served-by"] == "router-2"

        until("the second router decides alone", lambda: all(by_second() for _ in range(5)))
        after = {what: rig.client().get(path)["metadata"]["resourceVersion"] for what, path in paths.items()}
        assert after == written, "pods that come and go are no news for these objects"

        rig.restart_apiserver()
        route["spec"]["rules"][0]["backendRefs"][0]["weight"] = 0
        rig.apply(route)
        until("a change after the API server's restart is served", lambda: running.ask("/").status == 500, 30)
        second.close()
        engine.close()
    finally:
        running.stop()


def test_the_rights_are_no_wider_than_they_say(rig: Rig) -> None:
    client = rig.client("gateway")
    assert client.items("/api/v1/pods") is not None
    for path in ("/api/v1/secrets", "/api/v1/configmaps"):
        with pytest.raises(ApiError) as refused:
            client.items(path)
        assert refused.value.status == 403
    with pytest.raises(ApiError) as refused:
        client.create(manifests.gateway_class("another"))
    assert refused.value.status == 403
