"""Tests marked `chaos` run alone, also under xdist: they pause processes and judge what happens in seconds.

The workers of a run share a lock: ordinary tests hold it together, a chaos test holds it alone. A second lock
in front is taken in turn, so that a chaos test does not wait for ever while others come and go.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_FOLDER = "TESTS_ALONE_FOLDER"  # set by the controller, inherited by its workers


def pytest_configure(config: pytest.Config) -> None:
    """The controller of a run with workers makes the folder of the locks."""
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="lockstep-alone-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """And removes it when its workers are gone."""
    if not hasattr(config, "workerinput") and (folder := os.environ.pop(_FOLDER, "")):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait for the turn outside of the test's own time limit."""
    with _turn(alone="chaos" in item.keywords):
        return (yield)


@contextmanager
def _turn(*, alone: bool) -> Iterator[None]:
    folder = os.environ.get(_FOLDER, "")
    if not folder:
        yield
        return
    with (Path(folder) / "front").open("w") as front, (Path(folder) / "lock").open("w") as lock:
        fcntl.flock(front, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(front, fcntl.LOCK_UN)
        yield
