"""Starts the parts in order and ends them in the opposite one, whatever happens in between."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.demo import seed, welcome
from deploy.demo.client import ApiProblem
from deploy.demo.folder import ROOT, Folder, take_folder
from deploy.demo.path import PROBE_HEADER, ServedPath, router_program
from deploy.demo.processes import PartFailed, Product
from deploy.rig.build import RigUnavailable, build
from deploy.rig.parts import RigFailed
from deploy.rig.rig import Rig
from deploy.rig.workloads import make_namespace
from deploy.services import ServiceFailed, start_postgres, start_valkey

# A demo that nobody waits for: new groups count as stable sooner than the 30 s of a real start.
SETTINGS = {"LOCKSTEP_STABLE_FOR": "3", "LOCKSTEP_PATHS_EVERY": "2"}


@dataclass
class Demo:
    """What a start is asked for."""

    port: int = 8000


def run(demo: Demo) -> None:
    """Start everything, print how to use it, and watch over the parts until a signal unwinds this call.

    Raises PartFailed for the part that did not start or ended by itself.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(take_folder())
        product, rig = _start(demo, folder, stack)
        path = ServedPath(rig, seed.NAMESPACE, model=seed.MODEL)
        probes = folder.data / "probes"
        probes.mkdir(mode=0o700, exist_ok=True)
        credential = {"urls": [path.probe_url], "headers": {PROBE_HEADER: path.secret}}
        (probes / seed.CREDENTIAL).write_text(json.dumps(credential))
        with _part("people, cluster, a served model", folder):
            make_namespace(rig.client(), seed.NAMESPACE)
            story = seed.plant(product, rig, stack.enter_context(path))
        facts = folder.data / "facts.json"
        facts.touch(mode=0o600)
        facts.write_text(json.dumps(story.facts()))
        print(welcome.text(story, logs=folder.logs, facts=facts), flush=True)
        while True:
            time.sleep(1)
            if gone := product.gone():
                raise product.failed(gone, "ended by itself")
            if lost := rig.gone():
                raise PartFailed(f"rig: {lost}", "ended by itself", _rig_log(folder, lost), rig.log(lost))


def _start(demo: Demo, folder: Folder, stack: ExitStack) -> tuple[Product, Rig]:
    with _part("rig programs", folder):
        build(lambda line: print(f"  {line}", flush=True), extra=("path-crds",))
    with _part("PostgreSQL", folder):
        database = stack.enter_context(start_postgres(folder.data))
    with _part("Valkey", folder):
        broker = stack.enter_context(start_valkey(folder.data))
    with _part("rig", folder):
        rig = stack.enter_context(
            Rig(folder=folder.data / "rig", programs=[router_program()], path_crds=True)
        )
    with _part("target manifests", folder):
        install_target(rig)
    product = Product(
        logs=folder.logs,
        database_url=database,
        broker_url=broker,
        kubeconfig=rig.kubeconfig("lockstep"),
        settings={**SETTINGS, "LOCKSTEP_PROBE_CREDENTIALS": str(folder.data / "probes")},
    )
    stack.callback(product.stop)
    with _part("migrations", folder):
        product.manage("migrate", "--no-input")
    with _part("web", folder):
        product.start_web(demo.port)
    with _part("worker, beat, watcher", folder):
        product.start_rest()
    return product, rig


def install_target(rig: Rig) -> None:
    """What a managed cluster needs before Lockstep may work in it: namespace, account, rights, policies."""
    manifests = list((ROOT / "deploy" / "target").glob("*.yaml"))
    for path in sorted(manifests, key=lambda path: path.stem != "namespace"):
        if path.stem != "scrape":  # Prometheus reads that one
            rig.apply(path.read_text(encoding="utf-8"))


@contextmanager
def _part(name: str, folder: Folder) -> Iterator[None]:
    """Say that a part starts and how long it took; give failures one shape."""
    print(f"- {name}", flush=True)
    begun = time.monotonic()
    try:
        yield
    except RigUnavailable as failed:
        raise PartFailed(name, failed.reason, folder.logs) from failed
    except RigFailed as failed:
        log = _rig_log(folder, failed.part)
        raise PartFailed(f"rig: {failed.part}", failed.problem, log, failed.log) from failed
    except (ApiProblem, TimeoutError, OSError) as failed:
        raise PartFailed(name, str(failed), folder.logs) from failed
    except ServiceFailed as failed:
        problem = str(failed).replace(str(folder.data), str(folder.logs))
        raise PartFailed(name, problem, folder.logs) from failed
    print(f"  {time.monotonic() - begun:.1f} s", flush=True)


def _rig_log(folder: Folder, part: str) -> Path:
    """Where the log of a part of the rig lies once the demo has ended."""
    return folder.logs / "rig" / "logs" / f"{part}.log"
