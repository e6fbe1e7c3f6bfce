"""``python -m deploy.demo.emulator``: a Kubernetes API on this machine until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from deploy.demo.emulator.controllers.cluster import inhabit
from deploy.demo.emulator.controllers.differences import LIVING
from deploy.demo.emulator.controllers.settings import Settings
from deploy.demo.emulator.differences import DIFFERENCES, written
from deploy.demo.emulator.emulator import Emulator
from deploy.rig.nodes import NodePool


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.emulator", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="a free one by default")
    parser.add_argument(
        "--dir", type=Path, help="where kubeconfig files go (kept); a temporary folder by default"
    )
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument(
        "--newer-sets", action="store_true", help="DisaggregatedSets with slices and role scalers"
    )
    parser.add_argument("--bare", action="store_true", help="the API alone, without controllers and kubelets")
    parser.add_argument("--differences", action="store_true", help="print in what it is not like a real one")
    options = parser.parse_args()
    if options.differences:
        print(written((*DIFFERENCES, *LIVING)))
        return
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with Emulator(
        nodes=NodePool(count=options.nodes),
        newer_sets=options.newer_sets,
        folder=options.dir,
        port=options.port,
    ) as emulator:
        print(f"The emulator is ready: {emulator.server}", flush=True)
        print(f"  export KUBECONFIG={emulator.kubeconfig()}", flush=True)
        if options.bare:
            print("  Nothing acts on what is stored but the garbage collector.", flush=True)
        else:
            inhabit(emulator, Settings(slices=options.newer_sets))
            print("  Controllers, scheduler and kubelets are played; nothing runs in the pods.", flush=True)
        ended.wait()
        print("Stopping.", flush=True)


if __name__ == "__main__":
    main()
