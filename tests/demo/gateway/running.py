"""One running gateway with everything around it, and the few verbs that its tests are written in."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
import urllib3
import yaml

from deploy.demo.gateway import manifests
from deploy.services import free_port
from tests.demo.gateway.backends import Engine, Router
from tests.demo.gateway.fake_api import FakeApi
from tests.demo.gateway.stage import Stage

Doc = dict[str, Any]
T = TypeVar("T")

ROOT = Path(__file__).parents[3]
SECRET = "only-lockstep-knows"
NAMESPACE = "models"
GATEWAY = ("edge", "front")


def until(what: str, look: Callable[[], T], limit_s: float = 10.0) -> T:
    """The first true result of ``look()``; AssertionError after ``limit_s``."""
    end = time.monotonic() + limit_s
    while not (seen := look()):
        assert time.monotonic() < end, f"not seen within {limit_s:.0f} s: {what} (last: {seen!r})"
        time.sleep(0.01)
    return seen


class Gateway:
    """The program under test, started on free ports."""

    def __init__(
        self,
        api: FakeApi | Path,
        stage: Stage,
        folder: Path,
        more: Sequence[str] = (),
        secret: str = SECRET,
        front: str = "auto",
    ) -> None:
        folder.mkdir(exist_ok=True)
        if isinstance(api, Path):
            kubeconfig, context = api, ""
        else:
            kubeconfig, context = folder / "kubeconfig", "fake"
            kubeconfig.write_text(yaml.safe_dump(api.kubeconfig()))
        self.folder = folder
        self.address = stage.address()
        self.port, self.probe_port, self.admin_port = free_port(), free_port(), free_port()
        self.access_log = folder / "access.jsonl"
        arguments = {
            "kubeconfig": kubeconfig,
            "context": context,
            "gateway-namespace": GATEWAY[0],
            "gateway": GATEWAY[1],
            "address": self.address,
            "port": self.port,
            "probe-port": self.probe_port,
            "admin-port": self.admin_port,
            "access-log": self.access_log,
            "front": front,
        }
        if secret:
            (folder / "secret").write_text(secret + "\n")
            arguments["probe-secret-file"] = folder / "secret"
        options = [f"--{name}={value}" for name, value in arguments.items()]
        self.output = folder / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deploy.demo.gateway", *options, *more],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.http = urllib3.PoolManager(retries=False, maxsize=16)

    def ready(self) -> bool:
        """What GET /ready says; fails when the program has ended."""
        assert self.process.poll() is None, self.output.read_text()
        try:
            return self.http.request("GET", f"http://127.0.0.1:{self.admin_port}/ready").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def wait_ready(self) -> Gateway:
        """Return when it serves its first configuration."""
        until("the gateway is ready", self.ready, 30)
        return self

    def envoy(self) -> psutil.Process:
        """Its Envoy."""
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def url(self, path: str, *, probe: bool = False) -> str:
        """Where a path is, for clients or for probes."""
        return f"http://{self.address}:{self.probe_port if probe else self.port}{path}"

    def ask(
        self, path: str, headers: Mapping[str, str] | None = None, *, probe: bool = False, **more: Any
    ) -> urllib3.BaseHTTPResponse:
        """One request, POST unless told otherwise."""
        method = more.pop("method", "POST")
        more.setdefault("body", b'{"model": "m"}' if method == "POST" else None)
        more.setdefault("timeout", 10)
        sent = {"x-lockstep-probe": SECRET, **(headers or {})} if probe else headers
        return self.http.request(method, self.url(path, probe=probe), headers=sent, **more)

    def engine_of(self, path: str) -> str:
        """Which engine serves a request now; empty for any other answer, and for none within a moment."""
        try:
            answer = self.ask(path, timeout=0.3)
        except urllib3.exceptions.TimeoutError:
            return ""
        return str(answer.json()["engine"]) if answer.status == 200 else ""

    def serves(self, path: str) -> bool:
        """Whether a path is served now, on both ports: each takes up new routes by itself."""
        return all(self.ask(path, probe=probe).status == 200 for probe in (True, False))

    def log(self, request_id: str) -> Doc:
        """The line of the access log about one request, when it is there."""

        def look() -> Doc | None:
            lines = self.access_log.read_text().splitlines() if self.access_log.exists() else []
            found = (json.loads(line) for line in lines if request_id in line)
            return next((line for line in found if line["request_id"] == request_id), None)

        return until(f"{request_id} in the access log", look)  # type: ignore[return-value]

    def stop(self) -> None:
        """End it, whatever state it is in."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Scene:
    """A cluster with routers and engines. Names of pools and paths are fresh for each call, so tests can share it."""

    def __init__(self, stage: Stage, api: FakeApi, front: str = "auto") -> None:
        self.stage = stage
        self.front = front
        self.api = api
        self._numbers = itertools.count(1)
        self._open: list[Router | Engine] = []
        api.put(manifests.gateway_class())
        api.put(manifests.gateway(GATEWAY[1], GATEWAY[0]))

    def fresh(self, stem: str) -> str:
        """A name that was not used before."""
        return f"{stem}-{next(self._numbers)}"

    def engine(self, name: str = "") -> Engine:
        """A running engine; it is no pod yet."""
        self._open.append(made := Engine(self.stage, name or self.fresh("engine")))
        return made

    def router(self, destination: str, name: str = "") -> Router:
        """A running router; it is no pod yet."""
        self._open.append(made := Router(self.stage, name or self.fresh("router"), destination))
        return made

    def pod(self, name: str, ip: str, labels: Mapping[str, str], *, ready: bool = True, **meta: Any) -> None:
        """Create or change a pod."""
        port = {"name": "grpc", "containerPort": 9002}
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": dict(labels), **meta},
                "spec": {"containers": [{"name": "main", "ports": [port]}]},
                "status": {"phase": "Running", "podIP": ip, "conditions": [condition]},
            }
        )

    def pool(
        self, routers: Sequence[Router] = (), *, engines: Sequence[Engine] = (), fail_open: bool = False
    ) -> str:
        """An InferencePool with its router Service and pods for routers and engines; returns its name."""
        name = self.fresh("pool")
        picker: Doc = {"name": f"{name}-epp", "port": {"number": 9002}}
        if fail_open:
            picker["failureMode"] = "FailOpen"
        self.api.put(
            {
                "apiVersion": "inference.networking.k8s.io/v1",
                "kind": "InferencePool",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "selector": {"matchLabels": {"engines-of": name}},
                    "targetPorts": [{"number": 8000}],
                    "endpointPickerRef": picker,
                },
                # As the real CRD's default.
                "status": {
                    "parents": [{"parentRef": {"kind": "Status", "name": "default"}, "conditions": []}]
                },
            }
        )
        self.service(name)
        for router in routers:
            self.router_pod(name, router)
        for engine in engines:
            self.pod(engine.name, engine.ip, {"engines-of": name})
        return name

    def service(self, pool: str) -> None:
        """The Service of a pool's routers, its target port by name."""
        ports = [
            {"name": "metrics", "port": 9090},
            {"name": "grpc-ext-proc", "port": 9002, "targetPort": "grpc"},
        ]
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": f"{pool}-epp", "namespace": NAMESPACE},
                "spec": {"selector": {"router-of": pool}, "ports": ports},
            }
        )

    def router_pod(self, pool: str, router: Router, *, ready: bool = True, **meta: Any) -> None:
        """Make a router a pod of a pool's Service, or change it."""
        self.pod(router.name, router.ip, {"router-of": pool}, ready=ready, **meta)

    def served(self, engine: str = "") -> tuple[str, Engine, Router]:
        """A pool with one engine and one router that always picks it."""
        made = self.engine(engine)
        router = self.router(made.address)
        return self.pool([router], engines=[made]), made, router

    def route(self, pools: Mapping[str, int], *, path: str = "", name: str = "", **more: Any) -> str:
        """An HTTPRoute of a fresh path prefix; returns the prefix."""
        path = path or f"/{self.fresh('path')}"
        doc = self.route_doc(pools, path=path, name=name, **more)
        self.api.put(doc)
        return path

    def route_doc(self, pools: Mapping[str, int], *, path: str, name: str = "", **more: Any) -> Doc:
        """The document that ``route`` puts."""
        return manifests.http_route(
            name or path.strip("/"),
            NAMESPACE,
            gateway=GATEWAY[1],
            gateway_namespace=GATEWAY[0],
            pools=pools,
            path=path,
            **more,
        )

    def conditions(self, kind: str, name: str) -> dict[str, Doc]:
        """Conditions that the controller wrote on a route or pool, by type; empty before it did."""
        parents = self.api.get(kind, NAMESPACE, name).get("status", {}).get("parents", [])
        ours = [each for each in parents if each.get("controllerName") == "lockstep.dev/demo-gateway"]
        return {each["type"]: each for each in ours[0]["conditions"]} if ours else {}

    def close(self) -> None:
        """End routers and engines."""
        for each in self._open:
            each.close()


@contextmanager
def staged(front: str = "auto") -> Iterator[Scene]:
    """A scene, closed afterwards; ``front`` is what its gateways are to serve requests with."""
    stage = Stage()
    api = FakeApi(stage)
    scene = Scene(stage, api, front)
    try:
        yield scene
    finally:
        scene.close()
        api.stop()
        stage.close()
