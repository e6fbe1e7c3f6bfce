"""`python -m deploy.demo.world CLUSTER --folder F`: one simulated cluster with everything that is served in it.

An emulated API server with its controllers, one gateway, the routers of the pools, all engines, a metric source and
steady load. When all of it serves, F/facts.json says where it is.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import urllib3

from deploy.demo.emulator.controllers.rig import EmulatedRig
from deploy.demo.emulator.controllers.settings import Settings, Times
from deploy.demo.folder import ROOT
from deploy.demo.gateway import manifests as gateway_docs
from deploy.demo.load import SteadyLoad, Stream
from deploy.demo.path import GATEWAY, ServedPath, router_program
from deploy.demo.router.manifests import router_objects
from deploy.demo.story import CLUSTERS, ServedPool, StoryCluster
from deploy.demo.target import install_target
from deploy.rig import Rig, prometheus, workloads
from deploy.rig.api import until
from deploy.rig.build import RigUnavailable
from deploy.rig.parts import RigFailed
from deploy.services import free_port

Json = dict[str, Any]

GATEWAYS = "gateways"
MODEL_HEADER = "x-gateway-model-name"
# What a person should see: engines load for a moment, groups take a while to go.
TIMES = Times(start_s=0.2, ready_s=1.0, end_s=0.5)
TIME_SCALE = 0.2  # of the engines: five times as fast as the hardware that they play
SCRAPE_S = 5.0
_SERVED_LIMIT_S = 120.0
_LOOK_S = 1.0


@dataclass(frozen=True)
class WorldFacts:
    """Where a simulated cluster is: files, addresses, and what a probe has to show."""

    name: str
    kubeconfigs: dict[str, str]
    public_url: str
    probe_url: str
    probe_secret: str
    engines_url: str
    metrics_url: str

    def write(self, path: Path) -> None:
        """Whole or not at all: whoever waits for the file may read it."""
        partial = path.with_suffix(".partial")
        partial.touch(mode=0o600)
        partial.write_text(json.dumps(asdict(self)))
        os.replace(partial, path)

    @classmethod
    def read(cls, path: Path) -> WorldFacts | None:
        """None where it is not there yet."""
        return cls(**json.loads(path.read_text())) if path.is_file() else None


def headers_of(pool: ServedPool) -> dict[str, str]:
    """What leads a request to the pool: one gateway serves all models of a cluster."""
    return {MODEL_HEADER: pool.model}


@contextmanager
def world(cluster: StoryCluster, folder: Path, *, seed: int) -> Iterator[tuple[EmulatedRig, WorldFacts]]:
    """The cluster, serving. Raises RigFailed with the part that did not start, TimeoutError for what never served."""
    with ExitStack() as stack:
        rig = stack.enter_context(
            EmulatedRig(
                nodes=cluster.machines,
                programs=[router_program()],
                settings=Settings(times=TIMES),
                folder=folder,
                seed=seed,
            )
        )
        install_target(rig.apply)
        client = rig.client()
        for name in sorted({GATEWAYS, *(pool.namespace for pool in cluster.pools)}):
            workloads.make_namespace(client, name)
        for pool in cluster.pools:
            _lay(rig, pool)
        metrics_url = _start_metrics(rig)
        path = stack.enter_context(
            ServedPath(cast(Rig, rig), GATEWAYS, time_scale=TIME_SCALE, everywhere=True)
        )
        for pool in cluster.pools:
            workloads.wait_settled(client, pool.namespace, pool.name, limit_s=_SERVED_LIMIT_S)
            until(f"{pool.address} served", partial(_answers, path, pool), limit_s=_SERVED_LIMIT_S)
        streams = [Stream(pool.model, headers_of(pool), pool.rate) for pool in cluster.pools]
        stack.enter_context(SteadyLoad(path.public_url, streams, seed=seed))
        yield (
            rig,
            WorldFacts(
                name=cluster.name,
                kubeconfigs={name: str(rig.kubeconfig(name)) for name in ("admin", "lockstep")},
                public_url=path.public_url,
                probe_url=path.probe_url,
                probe_secret=path.secret,
                engines_url=path.engines_url,
                metrics_url=metrics_url,
            ),
        )


def _lay(rig: EmulatedRig, pool: ServedPool) -> None:
    """The objects of a pool: set, router, InferencePool, route."""
    rig.client().create(workloads.disaggregated_set(pool.name, pool.namespace, pool.roles()))
    rig.apply(
        router_objects(
            release=pool.name, namespace=pool.namespace, set_name=pool.name, failure_mode="FailClose"
        )
    )
    route = gateway_docs.http_route(
        pool.name,
        pool.namespace,
        gateway=GATEWAY,
        gateway_namespace=GATEWAYS,
        pools={pool.name: 1},
        headers=headers_of(pool),
    )
    rig.apply(route)


def _start_metrics(rig: EmulatedRig) -> str:
    """A metric source by the shipped recipe; its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    rig.apply(prometheus.rights("rig-prometheus"))
    argv: list[str | Path] = [
        *(sys.executable, "-m", "deploy.demo.metrics", "--kubeconfig", rig.kubeconfig("prometheus")),
        *("--port", str(port), "--recipe", ROOT / "deploy" / "target" / "scrape.yaml"),
        *("--interval", str(SCRAPE_S), "--keep", "3600"),
    ]
    rig.start_program("metrics", argv, until_ready=lambda: _ready(f"{url}/-/ready"), limit_s=60)
    return url


def _ready(url: str) -> bool:
    try:
        return urllib3.request("GET", url, timeout=2.0, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _answers(path: ServedPath, pool: ServedPool) -> bool:
    return path.ask("Are you there?", headers=headers_of(pool), model=pool.model)[0] == 200


def main() -> None:
    """Until SIGTERM (status 0), or until a part ends by itself, which the last line names (status 1)."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.world", description=__doc__)
    parser.add_argument("cluster", choices=[cluster.name for cluster in CLUSTERS])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: _end(ended))
    cluster = next(cluster for cluster in CLUSTERS if cluster.name == options.cluster)
    try:
        with world(cluster, options.folder, seed=options.seed) as (rig, facts):
            facts.write(options.folder / "facts.json")
            while not ended.wait(_LOOK_S):
                if lost := rig.gone():
                    raise RigFailed(lost, "ended by itself", rig.log(lost))
    except (RigFailed, RigUnavailable, TimeoutError, OSError) as failed:
        sys.exit(f"{options.cluster}: {failed}")


def _end(ended: threading.Event, _: FrameType | None = None) -> None:
    """The first signal unwinds, wherever the start is."""
    if not ended.is_set():
        ended.set()
        raise SystemExit(0)


if __name__ == "__main__":
    main()
