"""A served model on a rig: gateway, router and engines as local programs, put together in one place.

    with Rig(programs=[router_program()], path_crds=True) as rig, ServedPath(rig, "serving") as path:
        path.serve("chat", engine_pair())
        path.ask("Once upon a time")

The router runs as the program of its pods; gateway and engines stand beside the cluster, as machines would.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import urllib3

from deploy.demo.gateway import manifests as gateway_docs
from deploy.demo.router.manifests import IMAGE as ROUTER_IMAGE
from deploy.demo.router.manifests import router_objects
from deploy.rig import Rig, workloads
from deploy.rig.api import until
from deploy.rig.programs import PodProgram, repository

Doc = dict[str, Any]
GATEWAY = "front"
PROBE_HEADER = "x-lockstep-probe"


def router_program() -> PodProgram:
    """The router of deploy/demo for pods of its image."""
    argv = (sys.executable, "-m", "deploy.demo.router")
    return PodProgram(repository(ROUTER_IMAGE), argv, ready="grpc-health:9003:inference-extension")


class ServedPath:
    """Gateway and engines for one namespace of a rig; models are added with `serve`.

    ``model`` is the name that requests ask for; ``jitter`` and ``time_scale`` are the engines' (deploy/demo/engines).
    Ports are free ones; ``secret`` is what a probe must show on the probe port. ``front`` is what serves requests
    (deploy/demo/gateway/front.py), LOCKSTEP_GATEWAY by default. ``everywhere``: engines of all namespaces answer;
    the gateway takes routes from everywhere anyway.
    """

    def __init__(
        self,
        rig: Rig,
        namespace: str,
        *,
        model: str = "lockstep-demo/tiny",
        jitter: float = 0.0,
        time_scale: float = 0.02,
        front: str = "",
        everywhere: bool = False,
    ) -> None:
        self.rig, self.namespace, self.model = rig, namespace, model
        self.secret = secrets.token_hex(8)
        self._jitter, self._time_scale = jitter, time_scale
        self._everywhere = everywhere
        self._front = front or os.environ.get("LOCKSTEP_GATEWAY") or "auto"
        self._ports = dict(zip(("public", "probe", "gateway", "engines"), _free_ports(4), strict=True))
        self._http = urllib3.PoolManager(maxsize=32, retries=False)
        self._started: list[str] = []

    def start(self) -> ServedPath:
        """Start both programs; returns when the gateway's first configuration is active."""
        self.rig.apply([gateway_docs.gateway_class(), gateway_docs.gateway(GATEWAY, self.namespace)])
        self._start("engines", self._engines(), "engines")
        self._start("gateway", self._gateway(), "gateway")
        return self

    def stop(self) -> None:
        """End what was started."""
        for name in reversed(self._started):
            self.rig.stop_part(name)
        self._started.clear()

    def __enter__(self) -> ServedPath:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- where it is

    @property
    def public_url(self) -> str:
        """Where clients come in."""
        return f"http://127.0.0.1:{self._ports['public']}"

    @property
    def probe_url(self) -> str:
        """Where probes come in: the revision header passes here, with the secret."""
        return f"http://127.0.0.1:{self._ports['probe']}"

    @property
    def engines_url(self) -> str:
        """The admin port of the engines: books and faults."""
        return f"http://127.0.0.1:{self._ports['engines']}"

    # --- models

    def serve(
        self,
        name: str,
        roles: Sequence[Doc] | None = None,
        *,
        config: str | None = None,
        guard: bool = True,
        failure_mode: str = "FailClose",
        limit_s: float = 60.0,
        router: Mapping[str, Any] | None = None,
        **route: Any,
    ) -> str:
        """A set with its router, pool and route, all of that name; the set's revision label once it serves.

        `router` goes to ``router_objects`` (image, flags, ...), `route` to the route (objective, fairness, ...).
        """
        client = self.rig.client()
        if roles is not None:
            client.create(workloads.disaggregated_set(name, self.namespace, roles))
        docs = router_objects(
            release=name,
            namespace=self.namespace,
            set_name=name,
            config=config,
            failure_mode=failure_mode,
            **(router or {}),
        )
        self.rig.apply(docs)
        self.rig.apply([self.route(name, {name: 1}, guard=guard, **route)])
        label = workloads.wait_settled(client, self.namespace, name, limit_s=limit_s)
        until(f"{name} served", lambda: self.ask("Are you there?")[0] == 200, limit_s=limit_s)
        return label

    def route(self, name: str, pools: Mapping[str, int], **options: Any) -> Doc:
        """The HTTPRoute of a model, over pools with weights."""
        return gateway_docs.http_route(
            name, self.namespace, gateway=GATEWAY, gateway_namespace=self.namespace, pools=pools, **options
        )

    # --- requests

    def ask(
        self, prompt: str, *, probe: bool = False, headers: Mapping[str, str] | None = None, **body: Any
    ) -> tuple[int, Doc, Mapping[str, str]]:
        """One completion: status, document, response headers. 0 where nobody answered."""
        sent = {"model": self.model, "prompt": prompt, "max_tokens": 8, **body}
        url = self.probe_url if probe else self.public_url
        named = {
            "content-type": "application/json",
            **({PROBE_HEADER: self.secret} if probe else {}),
            **(headers or {}),
        }
        try:
            answer = self._http.request(
                "POST", f"{url}/v1/completions", body=json.dumps(sent).encode(), headers=named, timeout=10.0
            )
        except urllib3.exceptions.HTTPError:
            return 0, {}, {}
        try:
            document = json.loads(answer.data)
        except ValueError:
            document = {"text": answer.data.decode(errors="replace")}
        return answer.status, document, dict(answer.headers)

    # --- the engines' own books

    def books(self) -> Doc:
        """Counts by pair of revisions since the last reset."""
        return self._admin("GET", "/books/summary")

    def reset_books(self) -> None:
        """Begin to count anew."""
        self._admin("POST", "/books/reset")

    def fault(self, match: Doc, fault: Doc) -> Doc:
        """Have engines misbehave (deploy/demo/engines/faults.py); the rule with its id."""
        return self._admin("POST", "/faults", {"match": match, "fault": fault})

    def heal(self) -> None:
        """Take every live fault away."""
        self._admin("DELETE", "/faults")

    def _admin(self, method: str, path: str, body: Doc | None = None) -> Doc:
        answer = self._http.request(method, f"{self.engines_url}{path}", json=body, timeout=10.0)
        document: Doc = json.loads(answer.data or b"{}")
        if answer.status >= 400:
            raise ValueError(f"{method} {path}: {answer.status} {document}")
        return document

    # --- programs

    def _engines(self) -> list[str | Path]:
        return [
            *(sys.executable, "-m", "deploy.demo.engines", "--kubeconfig", self.rig.kubeconfig()),
            *(() if self._everywhere else ("--namespace", self.namespace)),
            *("--admin-port", str(self._ports["engines"])),
            *("--jitter", str(self._jitter), "--time-scale", str(self._time_scale)),
        ]

    def _gateway(self) -> list[str | Path]:
        secret = self.rig.dir / f"probe-secret-{self.namespace}"
        secret.write_text(self.secret)
        return [
            *(sys.executable, "-m", "deploy.demo.gateway", "--kubeconfig", self.rig.kubeconfig()),
            *("--gateway-namespace", self.namespace, "--gateway", GATEWAY, "--front", self._front),
            *("--port", str(self._ports["public"]), "--probe-port", str(self._ports["probe"])),
            *("--admin-port", str(self._ports["gateway"]), "--probe-secret-file", secret),
        ]

    def _start(self, name: str, argv: list[str | Path], port: str) -> None:
        part = f"{name}-{self.namespace}"
        self.rig.start_program(part, argv, until_ready=lambda: self._ready(port), limit_s=60)
        self._started.append(part)

    def _ready(self, port: str) -> bool:
        try:
            answer = self._http.request("GET", f"http://127.0.0.1:{self._ports[port]}/ready", timeout=2.0)
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200


def _free_ports(count: int) -> list[int]:
    """Ports that were free together a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
