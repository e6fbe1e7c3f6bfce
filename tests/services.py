"""The servers of a test run: PostgreSQL and Valkey, once per run, shared by its xdist workers.

Each worker has a database of its own (pytest-django's suffix) and a Valkey database number of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import tempfile
from pathlib import Path

from deploy import services

_running = contextlib.ExitStack()
_FIXED = {
    "LOCKSTEP_SECRET_KEY": "tests-only-not-a-secret-0123456789abcdef0123456789abcdef",
    "DJANGO_SETTINGS_MODULE": "controlplane.settings",
    "LOCKSTEP_LOG_LEVEL": "WARNING",
}


def begin() -> None:
    """Set the environment that Django reads, starting what DATABASE_URL and LOCKSTEP_BROKER_URL do not name.

    A run of tests of `policy` alone starts nothing: those touch no server.
    """
    for name, value in _FIXED.items():
        os.environ.setdefault(name, value)
    if not _only_policy():
        _start_missing()
    if worker := os.environ.get("PYTEST_XDIST_WORKER", ""):
        address = os.environ.get("LOCKSTEP_BROKER_URL", "")
        os.environ["LOCKSTEP_BROKER_URL"] = (
            f"{address.rpartition('/')[0]}/{int(worker.removeprefix('gw')) + 1}"
        )


def end() -> None:
    """Stop what `begin` started."""
    _running.close()


def _start_missing() -> None:
    if "DATABASE_URL" in os.environ and "LOCKSTEP_BROKER_URL" in os.environ:
        return
    atexit.register(end)
    folder = Path(_running.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-tests-")))
    if "DATABASE_URL" not in os.environ:
        os.environ["DATABASE_URL"] = _running.enter_context(services.start_postgres(folder))
        _running.callback(os.environ.pop, "DATABASE_URL", None)
    if "LOCKSTEP_BROKER_URL" not in os.environ:
        os.environ["LOCKSTEP_BROKER_URL"] = _running.enter_context(services.start_valkey(folder))
        _running.callback(os.environ.pop, "LOCKSTEP_BROKER_URL", None)


def _only_policy() -> bool:
    paths = [argument for argument in sys.argv[1:] if not argument.startswith("-") and "tests" in argument]
    return bool(paths) and all(
        Path(path).as_posix().lstrip("./").startswith("tests/policy") for path in paths
    )
