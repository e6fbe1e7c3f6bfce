"""Readiness checks as a kubelet makes them: TCP, HTTP, gRPC health."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Doc = dict[str, Any]
# Nobody waits for a rig: a period longer than this is not kept, nor is a delay before the first check.
LONGEST_PERIOD_S = 1.0

Address = Callable[[int], tuple[str, int]]


@dataclass(frozen=True)
class Probe:
    """One check: ``kind`` is tcp, http, https or grpc; ``detail`` the path or the gRPC service name."""

    kind: str
    port: int
    detail: str = ""
    period_s: float = 0.5
    timeout_s: float = 1.0
    successes: int = 1
    failures: int = 3


def readiness(container: Doc, otherwise: str) -> Probe | None:
    """The container's readinessProbe, else what the program says (PodProgram.ready); None: ready when it runs.

    ValueError for a text that means no check.
    """
    given = container.get("readinessProbe")
    if given and "exec" not in given:
        return _given(container, given)
    ports = [each["containerPort"] for each in container.get("ports", [])]
    kind, _, rest = otherwise.partition(":")
    if otherwise == "tcp":
        return Probe("tcp", ports[0]) if ports else None
    if kind == "tcp":
        return Probe("tcp", int(rest))
    if kind == "http":
        path, _, port = rest.rpartition(":")
        return Probe("http", int(port), path)
    if kind == "grpc-health":
        port, _, service = rest.partition(":")
        return Probe("grpc", int(port) if port else ports[0], service)
    raise ValueError(f"{otherwise!r} is no readiness check")


def _given(container: Doc, probe: Doc) -> Probe:
    common: Doc = {
        "period_s": min(LONGEST_PERIOD_S, float(probe.get("periodSeconds", 10))),
        "timeout_s": float(probe.get("timeoutSeconds", 1)),
        "successes": probe.get("successThreshold", 1),
        "failures": probe.get("failureThreshold", 3),
    }
    if "grpc" in probe:
        return Probe("grpc", probe["grpc"]["port"], probe["grpc"].get("service") or "", **common)
    if "httpGet" in probe:
        get = probe["httpGet"]
        kind = get.get("scheme", "HTTP").lower()
        return Probe(kind, _port(container, get["port"]), get.get("path", "/"), **common)
    return Probe("tcp", _port(container, probe["tcpSocket"]["port"]), **common)


def _port(container: Doc, port: int | str) -> int:
    if isinstance(port, int) or port.isdigit():
        return int(port)
    return next(int(each["containerPort"]) for each in container.get("ports", []) if each.get("name") == port)


async def passes(probe: Probe, address: Address) -> bool:
    """Whether the check succeeds now; ``address`` leads from a pod's port to where the program listens."""
    host, port = address(probe.port)
    check = {"tcp": _tcp, "http": _http, "https": _http, "grpc": _grpc}[probe.kind]
    try:
        async with asyncio.timeout(probe.timeout_s):
            return await check(probe, host, port)
    except (OSError, TimeoutError, EOFError, ValueError):
        return False


async def _tcp(probe: Probe, host: str, port: int) -> bool:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    return True


async def _http(probe: Probe, host: str, port: int) -> bool:
    context = None
    if probe.kind == "https":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        path = probe.detail if probe.detail.startswith("/") else f"/{probe.detail}"
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: rig-probe\r\n"
            "Accept: */*\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        status = (await reader.readline()).split()
        return len(status) > 1 and 200 <= int(status[1]) < 400
    finally:
        writer.close()


async def _grpc(probe: Probe, host: str, port: int) -> bool:
    import grpc.aio  # large: only where a program speaks it

    service = probe.detail.encode()
    # HealthCheckRequest{service = 1} and HealthCheckResponse{status = 1; SERVING is 1}.
    request = b"\x0a" + bytes([len(service)]) + service if service else b""
    async with grpc.aio.insecure_channel(f"{host}:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
        method: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            answer: bytes = await method(request, timeout=probe.timeout_s)
        except grpc.aio.AioRpcError:
            return False
    return answer == b"\x08\x01"
