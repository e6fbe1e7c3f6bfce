"""The program: ``python -m deploy.demo.gateway --kubeconfig F --gateway-namespace N --gateway NAME ...``."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
import tempfile
from pathlib import Path

from aiohttp import web

from deploy.demo.gateway.cluster import BadConfiguration, read_kubeconfig
from deploy.demo.gateway.controller import Controller, Task
from deploy.demo.gateway.envoy import Envoy
from deploy.demo.gateway.front import CHOICES, Front, FrontEnded, NotTakenUp, choose
from deploy.demo.gateway.listeners import Listening


def main() -> int:
    """Serve until SIGTERM (status 0), or until something ends it, which the last line names (status 1)."""
    options = _options()
    failed = False
    try:
        asyncio.run(_serve(options))
    except* (FrontEnded, NotTakenUp, OSError, BadConfiguration) as problems:
        failed = True
        print(f"gateway: {_first(problems)}", file=sys.stderr, flush=True)
    return 1 if failed else 0


def _first(problem: BaseException) -> BaseException:
    """The failure inside groups of failures."""
    return _first(problem.exceptions[0]) if isinstance(problem, BaseExceptionGroup) else problem


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gateway", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--context", default="", help="context of the kubeconfig; the current one by default")
    parser.add_argument("--gateway-namespace", required=True)
    parser.add_argument("--gateway", required=True, help="name of the Gateway object to serve")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="where clients come in")
    parser.add_argument("--probe-address", default="", help="as --address by default")
    parser.add_argument("--probe-port", type=int, required=True, help="where probes come in")
    parser.add_argument(
        "--probe-secret-file", type=Path, help="what x-lockstep-probe must say on the probe port"
    )
    parser.add_argument("--admin-port", type=int, required=True, help="GET /ready, on 127.0.0.1")
    parser.add_argument("--access-log", type=Path, help="JSON lines, one a request")
    parser.add_argument(
        "--access-log-bytes", type=int, default=16 * 1024 * 1024, help="size at which it is turned"
    )
    parser.add_argument(
        "--front",
        choices=CHOICES,
        default="auto",
        help="what serves requests: Envoy, or the small proxy; by default Envoy where there is one",
    )
    parser.add_argument("--envoy", type=Path, help="the Envoy to run; the one of the package by default")
    return parser.parse_args()


async def _serve(options: argparse.Namespace) -> None:
    access = read_kubeconfig(options.kubeconfig, options.context)
    listening = _listening(options)
    task = Task((options.gateway_namespace, options.gateway), listening, options.access_log_bytes)
    for address, port in (
        (listening.address, listening.port),
        (listening.probe_address, listening.probe_port),
    ):
        _must_be_free(address, port)
    with tempfile.TemporaryDirectory(prefix="lockstep-gateway-") as folder:
        front = _front(options, Path(folder), listening)
        controller = Controller(task, front)
        admin = await _start_admin(controller, options.admin_port)
        running = asyncio.create_task(controller.run(access))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await running
        finally:
            await front.stop()
            await admin.cleanup()


def _front(options: argparse.Namespace, folder: Path, listening: Listening) -> Front:
    envoy = choose(options.front, options.envoy)
    if envoy is not None:
        return Envoy(envoy, folder, listening)
    from deploy.demo.gateway.proxy import Proxy  # late: gRPC and its messages are slow to import

    print("gateway: the small proxy serves, not Envoy", flush=True)
    return Proxy(listening)


def _listening(options: argparse.Namespace) -> Listening:
    secret = options.probe_secret_file.read_text().strip() if options.probe_secret_file else ""
    if options.probe_secret_file and not secret:
        raise BadConfiguration(f"{options.probe_secret_file.name} is empty")
    if options.access_log:
        options.access_log.parent.mkdir(parents=True, exist_ok=True)  # Envoy would refuse its listeners
    return Listening(
        address=options.address,
        port=options.port,
        probe_address=options.probe_address or options.address,
        probe_port=options.probe_port,
        probe_secret=secret,
        access_log=options.access_log.resolve() if options.access_log else None,
    )


def _must_be_free(address: str, port: int) -> None:
    """Envoy would go on without the listener that it cannot bind; OSError here instead."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as problem:
            raise OSError(f"cannot listen at {address}:{port}: {problem.strerror}") from problem


async def _start_admin(controller: Controller, port: int) -> web.AppRunner:
    async def ready(request: web.Request) -> web.Response:
        return web.Response(
            text="ready\n" if controller.ready else "not ready\n", status=200 if controller.ready else 503
        )

    app = web.Application()
    app.router.add_get("/ready", ready)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner


if __name__ == "__main__":
    sys.exit(main())
