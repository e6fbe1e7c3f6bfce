"""``python -m deploy.rig build|up|check``: the rig for a person."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from deploy.rig.build import EXTRAS, RigUnavailable, available, build
from deploy.rig.nodes import NodePool
from deploy.rig.parts import RigFailed
from deploy.rig.rig import Rig


def _up(arguments: argparse.Namespace) -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    pool = NodePool(count=arguments.nodes, gpus=arguments.gpus)
    with Rig(nodes=pool, folder=arguments.dir, run_lws=not arguments.no_lws) as rig:
        print(f"The rig is ready: {rig.server}")
        print(f"  export KUBECONFIG={rig.kubeconfig('admin')}")
        print(f"  other identities: {rig.kubeconfig('admin').parent}/  logs: {rig.dir / 'logs'}/")
        print("Ctrl-C ends everything.", flush=True)
        while not ended.wait(1):
            gone = rig.gone()
            if gone:
                raise RigFailed(gone, "ended by itself", rig.log(gone))
        print("Stopping.", flush=True)


def _check(_: argparse.Namespace) -> None:
    can, reason = available()
    print(f"available: {reason}" if can else f"not available: {reason}")
    with_extras, extras_reason = available(EXTRAS)
    print(f"with {', '.join(EXTRAS)}: {'available' if with_extras else 'not available'}: {extras_reason}")
    if not can:
        sys.exit(1)


def _build(_: argparse.Namespace) -> None:
    made = build(extra=EXTRAS)
    for name, path in made.programs.items():
        print(f"{name}\t{path}")


def main() -> None:
    """Parse the command line and run one command."""
    parser = argparse.ArgumentParser(prog="python -m deploy.rig", description=__doc__)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("build", help="build what is missing").set_defaults(run=_build)
    commands.add_parser("check", help="say whether the rig can run here").set_defaults(run=_check)
    up = commands.add_parser("up", help="start a rig and wait for Ctrl-C")
    up.add_argument("--dir", type=Path, help="where files go and stay (default: a temporary folder)")
    up.add_argument("--nodes", type=int, default=8, help="number of GPU nodes")
    up.add_argument("--gpus", type=int, default=8, help="GPUs per node")
    up.add_argument("--no-lws", action="store_true", help="without the LeaderWorkerSet manager")
    up.set_defaults(run=_up)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except (RigUnavailable, RigFailed) as problem:
        sys.exit(f"rig: {problem}")


if __name__ == "__main__":
    main()
