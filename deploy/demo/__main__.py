"""`python -m deploy.demo`: start everything, say how to use it, end everything on Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from deploy.demo.launcher import Demo, run
from deploy.demo.processes import PartFailed


def main() -> None:
    """Parse the command line, run until a signal, and turn a failure into one message and status 1."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo", description=__doc__)
    parser.add_argument(
        "--port", type=int, default=8000, help="of the API; another one if it is taken (default 8000)"
    )
    parser.add_argument(
        "--real", action="store_true", help="on a real control plane (the rig), which needs Go"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the emulated clusters and their load (0)")
    parser.add_argument(
        "--no-story", action="store_true", help="clusters and people only, nothing has happened"
    )
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    demo = Demo(port=arguments.port, real=arguments.real, seed=arguments.seed, story=not arguments.no_story)
    try:
        run(demo)
    except PartFailed as failed:
        sys.exit(f"\nThe demo stopped. {failed}")


def _end(number: int, _: FrameType | None) -> None:
    """Unwind everything that was started; a second Ctrl-C does not interrupt that."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    print("\nStopping.", flush=True)
    sys.exit(0)


if __name__ == "__main__":
    main()
