"""`python -m deploy.demo.metrics`: a metric source for a cluster, in one process.

It follows the rig's recipe, or that of a file (the `scrape_configs` of its first document, such as
deploy/target/scrape.yaml).
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import uvloop
import yaml

from deploy.demo.metrics.server import Source
from deploy.demo.metrics.store import Store
from deploy.rig.prometheus import default_scrape_configs


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.metrics", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--recipe", type=Path, help="a file with scrape_configs; default: the rig's recipe")
    parser.add_argument("--interval", type=float, help="seconds between scrapes; default: as the recipe says")
    parser.add_argument("--keep", type=float, default=7200, help="seconds that samples are kept (7200)")
    parser.add_argument("--most", type=int, default=5_000_000, help="changes of values that are kept at most")
    return parser.parse_args(words)


def recipe(path: Path | None) -> list[dict[str, Any]]:
    """The jobs of a file, or of the rig's recipe. Raises ValueError where a file has none."""
    if path is None:
        return default_scrape_configs()
    first = next(iter(yaml.safe_load_all(path.read_text())), None)
    if not isinstance(first, dict) or not isinstance(first.get("scrape_configs"), list):
        raise ValueError(f"{path} has no scrape_configs")
    return list(first["scrape_configs"])


async def serve(options: argparse.Namespace) -> None:
    """Until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    source = Source(
        recipe(options.recipe),
        kubeconfig=options.kubeconfig,
        address=options.address,
        port=options.port,
        interval_s=options.interval,
        store=Store(keep_s=options.keep, most=options.most),
    )
    async with source:
        ended = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(source.failed())]
        try:
            done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in ended:
                each.cancel()


if __name__ == "__main__":
    try:
        uvloop.run(serve(arguments()))
    except (ValueError, OSError) as problem:
        sys.exit(f"metrics: {problem}")
