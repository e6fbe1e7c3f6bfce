"""A demo that runs as people run it, for tests: its output, its facts, its processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from deploy.demo.folder import ROOT


class RunningDemo:
    """One launcher process with everything below it."""

    def __init__(self, log: Path, *options: str, port: int = 0) -> None:
        self._log = log
        command = [sys.executable, "-m", "deploy.demo", "--port", str(port), *options]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")

    def wait_ready(self) -> None:
        """Until it says so."""
        until(
            "the demo is ready",
            lambda: "Lockstep is ready: " in self.output() or self.process.poll() is not None,
            240,
        )
        assert self.process.poll() is None, self.output()

    @property
    def facts_file(self) -> Path:
        """The file that the demo names."""
        found = re.search(r"(?:deploy\.demo\.walk|For scripts:) (\S+)", self.output())
        assert found
        return Path(found.group(1))

    def facts(self) -> dict[str, Any]:
        """Address, people and more."""
        facts: dict[str, Any] = json.loads(self.facts_file.read_text())
        return facts

    def family(self) -> list[psutil.Process]:
        """Every process below the launcher now."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def running_demo(log: Path, *options: str, port: int = 0) -> Iterator[RunningDemo]:
    """A ready demo; killed at the end if it still runs."""
    demo = RunningDemo(log, *options, port=port)
    try:
        demo.wait_ready()
        yield demo
    finally:
        if demo.process.poll() is None:
            demo.process.kill()
            demo.process.wait()


def until(what: str, look: Callable[[], object], seconds: float) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def alive(family: list[psutil.Process]) -> list[str]:
    """Those of the family that still run."""
    left = []
    for each in family:
        try:
            if each.is_running() and each.status() != psutil.STATUS_ZOMBIE:
                left.append(f"{each.pid} {' '.join(each.cmdline())}")
        except psutil.NoSuchProcess:
            continue
    return left
