"""The watch process: keeps what the database knows of each cluster current, and rings for those who wait.

python -m workers.watch                 every cluster, also those that are registered later
python -m workers.watch --cluster NAME  one cluster (one process per cluster where there are many)
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from typing import Any


def main(arguments: list[str] | None = None) -> None:
    """Watch until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m workers.watch", description=__doc__)
    parser.add_argument("--cluster", default="", help="name of the only cluster to watch")
    chosen = parser.parse_args(arguments)

    stop = threading.Event()

    def end(*_: Any) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    import django

    django.setup()
    from workers.watching import watch_clusters

    watch_clusters(only=chosen.cluster, stop=stop)
    # Threads that are in the middle of a call do not keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
