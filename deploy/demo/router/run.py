"""The router as a process: watches, ports, signals."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from prometheus_client import disable_created_metrics

from deploy.demo.router.books import Books
from deploy.demo.router.config import Config, load_config
from deploy.demo.router.documents import ConfigError
from deploy.demo.router.flags import FlagError, Options, read_flags
from deploy.demo.router.fleet import Doc, Fleet, objective_of, pod_of, pool_of
from deploy.demo.router.logs import set_up_logs
from deploy.demo.router.router import Router, Scraped
from deploy.demo.router.scrape import FLOOR_S, keep_reading
from deploy.demo.router.servers import ExtProc, ext_proc_adder, health_handler, metrics_app, start_grpc
from deploy.demo.router.watch import Cluster, NoCluster, find_cluster, follow

log = logging.getLogger("deploy.demo.router")

OBJECTIVES = ("llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2")


def main(arguments: list[str]) -> int:
    """Run until a signal; 0 then, 1 with one error line when the start fails."""
    set_up_logs(json_lines=False)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the llm-d router has no such series
    try:
        options = read_flags(arguments)
        set_up_logs(json_lines=options.json_logs)
        config = _configuration(options)
        cluster = find_cluster()
    except (FlagError, ConfigError, NoCluster, OSError) as error:
        log.error(" ".join(str(error).split()))
        return 1
    try:
        asyncio.run(serve(options, config, cluster))
    except (RuntimeError, OSError) as error:
        log.error("cannot serve: %s", " ".join(str(error).split()))
        return 1
    return 0


def _configuration(options: Options) -> Config:
    text = options.config_text
    if options.config_file:
        text = Path(options.config_file).read_text()
    log.info(
        "Flags processed: pool %s/%s, config %s",
        options.pool_namespace,
        options.pool_name,
        options.config_file,
    )
    log.info("Raw config: %s", text)
    config = load_config(text, allow_experimental=options.allow_experimental)
    for warning in config.warnings:
        log.warning(warning)
    return config


async def serve(options: Options, config: Config, cluster: Cluster) -> None:
    """Open the ports, follow the cluster, and drain when a signal comes.

    After SIGTERM or SIGINT health says NOT_SERVING and new requests are refused; the process ends as soon as the open
    streams have ended, at the latest after the drain time (the llm-d router always waits that time out).
    """
    fleet = Fleet()
    stale_s = max(options.staleness_s, 3 * FLOOR_S)
    router = Router(config, fleet, Books(options.pool_name), Scraped(stale_s))
    service = ExtProc(router)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def serving() -> bool:
        return fleet.pool is not None and not router.draining

    health = await start_grpc(
        options.bind,
        options.grpc_health_port,
        lambda server: server.add_generic_rpc_handlers((health_handler(serving),)),
    )
    ext = await start_grpc(options.bind, options.grpc_port, ext_proc_adder(service))
    runner = web.AppRunner(metrics_app(router), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, options.bind, options.metrics_port).start()
    work: list[Coroutine[Any, Any, None]] = _follow_all(cluster, fleet, options)
    if config.scrapes:
        work.append(keep_reading(router, options.refresh_metrics_s))
    tasks = [asyncio.create_task(one) for one in (*work, stop.wait())]
    log.info("listening on %s, ext_proc port %d", options.bind, options.grpc_port)
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    router.draining = True
    end = time.monotonic() + options.drain_s
    while service.open and time.monotonic() < end:
        await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(ext.stop(0.2), health.stop(0.2))
    await runner.cleanup()
    await cluster.close()
    for task in done:
        if not task.cancelled() and task.exception() is not None:
            raise RuntimeError(f"a task ended: {task.exception()!r}")


def _follow_all(cluster: Cluster, fleet: Fleet, options: Options) -> list[Coroutine[Any, Any, None]]:
    namespace, pool = options.pool_namespace, options.pool_name

    def pool_list(items: list[Doc]) -> None:
        fleet.set_pool(next((pool_of(one) for one in items if one["metadata"]["name"] == pool), None))

    def pool_event(kind: str, document: Doc) -> None:
        if document["metadata"]["name"] == pool:
            fleet.set_pool(None if kind == "DELETED" else pool_of(document))

    def pod_event(kind: str, document: Doc) -> None:
        if kind == "DELETED":
            fleet.drop_pod(document["metadata"]["name"])
        else:
            fleet.put_pod(pod_of(document))

    return [
        follow(
            cluster,
            f"/apis/inference.networking.k8s.io/v1/namespaces/{namespace}/inferencepools",
            on_list=pool_list,
            on_event=pool_event,
            query={"fieldSelector": f"metadata.name={pool}"},
        ),
        follow(
            cluster,
            f"/api/v1/namespaces/{namespace}/pods",
            on_list=lambda items: fleet.set_pods(pod_of(one) for one in items),
            on_event=pod_event,
        ),
        _follow_objectives(cluster, fleet, namespace, pool),
    ]


async def _follow_objectives(cluster: Cluster, fleet: Fleet, namespace: str, pool: str) -> None:
    """Follow the objectives of the group that the cluster serves; which one is decided once."""
    group = await _objective_group(cluster)

    def on_list(items: list[Doc]) -> None:
        fleet.objectives = dict(found for one in items if (found := objective_of(one, pool)))

    def on_event(kind: str, document: Doc) -> None:
        fleet.objectives.pop(document["metadata"]["name"], None)
        found = objective_of(document, pool)
        if found and kind != "DELETED":
            fleet.objectives[found[0]] = found[1]

    path = f"/apis/{group}/namespaces/{namespace}/inferenceobjectives"
    await follow(cluster, path, on_list=on_list, on_event=on_event)


async def _objective_group(cluster: Cluster) -> str:
    """The newer group where the cluster serves it, else the older one; asked until the server answers."""
    while True:
        for group in OBJECTIVES:
            try:
                status, document = await cluster.get(f"/apis/{group}")
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
                break
            if status == 200 and any(
                one["name"] == "inferenceobjectives" for one in document.get("resources", [])
            ):
                return group
        else:
            log.warning(
                "the cluster serves no InferenceObjective: every request has priority 0 until it does"
            )
        await asyncio.sleep(2.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
