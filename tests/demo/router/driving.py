"""Starting the router as its own process, and driving ext_proc streams as Envoy would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
import urllib3
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as ext_proc_grpc
from prometheus_client.parser import text_string_to_metric_families

from deploy.demo.router.config import example_config
from deploy.demo.router.servers import HealthRequest, HealthResponse
from deploy.services import free_port
from tests.demo.router.cluster import NAMESPACE

ROOT = Path(__file__).resolve().parents[3]
T = TypeVar("T")
PLAIN = ("--secure-serving=false", "--metrics-endpoint-auth=false", "--tracing=false")


def until(what: str, look: Callable[[], T], *, limit_s: float = 30.0) -> T:
    """The first true result of `look()`, asked often; fails after the limit."""
    end = time.monotonic() + limit_s
    while not (seen := look()):
        assert time.monotonic() < end, f"not seen within {limit_s:.0f} s: {what}"
        time.sleep(0.02)
    return seen


def headers(**values: str) -> base_pb2.HeaderMap:
    """A header map; underscores in names become dashes, a leading dash a colon."""
    pairs = {(":" + k[1:] if k.startswith("_") else k).replace("_", "-"): v for k, v in values.items()}
    return base_pb2.HeaderMap(
        headers=[base_pb2.HeaderValue(key=k, raw_value=v.encode()) for k, v in pairs.items()]
    )


def ask_headers(
    *, end: bool = False, path: str = "/v1/completions", **more: str
) -> ext_proc.ProcessingRequest:
    """The first message of a stream."""
    found = headers(_method="POST", _path=path, content_type="application/json", **more)
    return ext_proc.ProcessingRequest(request_headers=ext_proc.HttpHeaders(headers=found, end_of_stream=end))


def body_of(model: str = "m", prompt: str = "hello") -> bytes:
    """A completion request."""
    return json.dumps({"model": model, "prompt": prompt}).encode()


def ask_body(body: bytes, *, end: bool = True) -> ext_proc.ProcessingRequest:
    """A piece of a request's body."""
    return ext_proc.ProcessingRequest(request_body=ext_proc.HttpBody(body=body, end_of_stream=end))


def answer_headers(status: str = "200", *, end: bool = False, **more: str) -> ext_proc.ProcessingRequest:
    """The response's headers on their way back."""
    found = headers(_status=status, **(more or {"content_type": "application/json"}))
    return ext_proc.ProcessingRequest(response_headers=ext_proc.HttpHeaders(headers=found, end_of_stream=end))


def answer_body(body: bytes = b"{}", *, end: bool = True) -> ext_proc.ProcessingRequest:
    """A piece of the response's body."""
    return ext_proc.ProcessingRequest(response_body=ext_proc.HttpBody(body=body, end_of_stream=end))


def set_by(mutation: Any) -> dict[str, str]:
    """Header names and values that a mutation sets."""
    return {one.header.key: one.header.raw_value.decode() for one in mutation.set_headers}


@dataclass
class Outcome:
    """What a client of the stream learned."""

    status: int = 200
    reason: str = ""
    message: str = ""
    destination: str = ""
    metadata: str = ""
    prefiller: str = ""
    removed: list[str] = field(default_factory=list)
    body: bytes = b""
    ended: bool = False
    stamped: dict[str, str] = field(default_factory=dict)

    def take(self, answer: ext_proc.ProcessingResponse) -> None:
        """Note one answer."""
        kind = answer.WhichOneof("response")
        if kind == "immediate_response":
            immediate = answer.immediate_response
            self.status, self.message = immediate.status.code, immediate.body.decode()
            self.reason = set_by(immediate.headers).get("x-llm-d-request-dropped-reason", "")
        elif kind == "request_headers":
            mutation = answer.request_headers.response.header_mutation
            found = set_by(mutation)
            self.destination = found["x-gateway-destination-endpoint"]
            self.prefiller = found.get("x-prefiller-host-port", "")
            self.removed = list(mutation.remove_headers)
            inner = answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields
            self.metadata = inner["x-gateway-destination-endpoint"].string_value
        elif kind == "request_body":
            streamed = answer.request_body.response.body_mutation.streamed_response
            self.body += streamed.body
            self.ended = streamed.end_of_stream
        elif kind == "response_headers":
            self.stamped = set_by(answer.response_headers.response.header_mutation)


@dataclass
class RunningRouter:
    """A router process and how to talk to it."""

    process: subprocess.Popen[str]
    port: int
    health_port: int
    metrics_port: int
    log: Path
    address: str = "127.0.0.1"
    channel: Any = None

    def stub(self) -> Any:
        """A synchronous client."""
        if self.channel is None:
            self.channel = grpc.insecure_channel(f"{self.address}:{self.port}")
        return ext_proc_grpc.ExternalProcessorStub(self.channel)

    def health(self, service: str = "") -> str:
        """SERVING, NOT_SERVING, or the gRPC code of a failed call."""
        with grpc.insecure_channel(f"{self.address}:{self.health_port}") as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=HealthRequest.SerializeToString,
                response_deserializer=HealthResponse.FromString,
            )
            try:
                return {1: "SERVING", 2: "NOT_SERVING"}[
                    check(HealthRequest(service=service), timeout=5).status
                ]
            except grpc.RpcError as error:
                return str(error.code().name)

    def decide(self, body: bytes | None = None, *, path: str = "/v1/completions", **more: str) -> Outcome:
        """One whole request, answered by an imagined engine with 200."""
        outcome = Outcome()
        messages = [ask_headers(path=path, **more), ask_body(body_of() if body is None else body)]
        messages += [answer_headers(), answer_body()]
        for answer in self.stub().Process(iter(messages), timeout=20):
            outcome.take(answer)
        return outcome

    def metric(self, name: str, /, **labels: str) -> float | None:
        """Sum of the samples of a name with these labels; None when there is none."""
        found = [
            sample.value
            for family in text_string_to_metric_families(self.page("/metrics").decode())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(found) if found else None

    def page(self, path: str) -> bytes:
        """A page of the metrics port."""
        answer = urllib3.request(
            "GET", f"http://{self.address}:{self.metrics_port}{path}", timeout=5, retries=False
        )
        assert answer.status == 200, path
        return answer.data


def command(*arguments: str) -> list[str]:
    """The command line of a router."""
    return [sys.executable, "-m", "deploy.demo.router", *arguments]


@contextmanager
def running_router(
    folder: Path,
    kubeconfig: Path,
    *flags: str,
    config: str | None = None,
    pool: str = "pool",
    serving: bool = True,
) -> Iterator[RunningRouter]:
    """A router process, by default with the example configuration of the set "qwen", waited for until it serves."""
    file = folder / "router.yaml"
    file.write_text(example_config("qwen") if config is None else config)
    ports = [free_port() for _ in range(3)]
    names = ("--grpc-port", "--grpc-health-port", "--metrics-port")
    listen = [f"{name}={port}" for name, port in zip(names, ports, strict=True)]
    log = folder / "router.log"
    with log.open("w") as written:
        process = subprocess.Popen(
            command(
                f"--pool-name={pool}",
                f"--pool-namespace={NAMESPACE}",
                f"--config-file={file}",
                "--allow-experimental-plugins",
                "--bind=127.0.0.1",
                *PLAIN,
                *listen,
                *flags,
            ),
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            cwd=ROOT,
            stderr=written,
            text=True,
        )
    router = RunningRouter(process, *ports, log)
    try:
        wanted = ("SERVING",) if serving else ("SERVING", "NOT_SERVING")
        until("the router serves", lambda: process.poll() is not None or router.health() in wanted)
        assert process.poll() is None, log.read_text()
        yield router
    finally:
        if router.channel is not None:
            router.channel.close()
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
