"""`python -m deploy.demo.engines`: all engines of a cluster in one process."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import uvloop
from aiohttp import web

from deploy.demo.engines.admin import admin_app
from deploy.demo.engines.books import ROWS
from deploy.demo.engines.fleet import Fleet
from deploy.demo.engines.kube import PodFeed
from deploy.demo.engines.tokens import noise_sd


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.engines", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", action="append", default=[], help="again for more; default: all")
    parser.add_argument("--admin-port", type=int, required=True)
    parser.add_argument("--admin-address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="of every engine, on its pod's address")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-scale", type=float, default=1.0, help="0.01: a hundred times faster")
    parser.add_argument("--jitter", type=float, default=0.0, help="probability that a greedy token flips")
    parser.add_argument("--book-rows", type=int, default=ROWS)
    return parser.parse_args(words)


async def serve(options: argparse.Namespace) -> None:
    """Until SIGTERM or SIGINT."""
    namespaces = options.namespace or [""]
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    noise_sd(options.jitter)  # refuses what cannot be, before anything listens
    async with Fleet(
        port=options.port,
        seed=options.seed,
        time_scale=options.time_scale,
        jitter=options.jitter,
        rows=options.book_rows,
    ) as fleet:
        runner = web.AppRunner(admin_app(fleet, namespaces), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, options.admin_address, options.admin_port).start()
        feeds = [asyncio.ensure_future(_feed(options.kubeconfig, each, fleet).run()) for each in namespaces]
        try:
            await asyncio.wait(
                [*feeds, asyncio.ensure_future(stop.wait())], return_when=asyncio.FIRST_COMPLETED
            )
            for feed in feeds:
                if feed.done():
                    feed.result()
        finally:
            for feed in feeds:
                feed.cancel()
            await asyncio.gather(*feeds, return_exceptions=True)
            await runner.cleanup()


def _feed(kubeconfig: Path, namespace: str, fleet: Fleet) -> PodFeed:
    return PodFeed(
        kubeconfig,
        namespace,
        replace=lambda documents: fleet.replace(namespace, documents),
        change=fleet.change,
    )


if __name__ == "__main__":
    uvloop.run(serve(arguments()))
