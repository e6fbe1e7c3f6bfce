"""The running programs of one rig: starting them, asking after them, stopping them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_KEEPER = Path(__file__).with_name("keeper.py")
# What the programs need of the caller's environment; the rest (proxies above all) would bend loopback calls.
_ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", "TZ": "UTC"}


class RigFailed(RuntimeError):
    """A part of the rig did not start, or ended by itself: ``part`` names it, ``log`` ends its log."""

    def __init__(self, part: str, problem: str, log: str = "") -> None:
        super().__init__(f"{part}: {problem}" + (f"\n--- last lines of its log ---\n{log}" if log else ""))
        self.part = part
        self.problem = problem
        self.log = log


class Keeper:
    """A handle on the keeper process of one rig (see keeper.py); usable from several threads.

    ``logs`` is the folder of the programs' logs; ``remove`` a folder that goes when everything has stopped;
    ``hold`` file descriptors that stay open (and so locked) as long as anything of the rig runs.
    """

    def __init__(self, *, logs: Path, remove: Path | None, hold: Sequence[int] = ()) -> None:
        self._logs = logs
        self._lock = threading.Lock()
        argv = [sys.executable, "-I", "-S", str(_KEEPER), str(os.getpid())] + (
            [str(remove)] if remove else []
        )
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(logs / "keeper.log").open("ab"),
            pass_fds=tuple(hold),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id of the keeper itself."""
        return self._process.pid

    def start(self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> int:
        """Start a program and return its process id; RigFailed when the system refuses."""
        answer = self._ask(
            do="start",
            name=name,
            argv=[str(part) for part in argv],
            env={**_ENVIRONMENT, **(env or {})},
            log=str(self._logs / f"{name}.log"),
        )
        if "error" in answer:
            raise RigFailed(name, answer["error"])
        return int(answer["pid"])

    def stop(self, name: str, grace: float = 2.0) -> bool:
        """End a program and wait until it is gone; False when it did not run."""
        return bool(self._ask(do="stop", name=name, grace=grace)["ran"])

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a running program; RigFailed when it does not run."""
        answer = self._ask(do="signal", name=name, signal=int(number))
        if "error" in answer:
            raise RigFailed(name, answer["error"], self.tail(name))

    def pids(self) -> dict[str, int]:
        """Process ids of everything that runs, by name."""
        return dict(self._ask(do="pids")["pids"])

    def runs(self, name: str) -> bool:
        """Whether a program runs now."""
        return bool(self._ask(do="poll", name=name)["runs"])

    def tail(self, name: str, lines: int = 15) -> str:
        """The last lines of a program's log."""
        path = self._logs / f"{name}.log"
        if not path.exists():
            return ""
        with path.open(errors="replace") as log:
            return "".join(deque(log, maxlen=lines))

    def wait_for(self, name: str, what: str, ready: Callable[[], bool], limit_s: float) -> None:
        """Return when ``ready()`` is true; RigFailed when the program ends first or ``limit_s`` passes."""
        end = time.monotonic() + limit_s
        while not ready():
            if not self.runs(name):
                raise RigFailed(name, f"ended while waiting for {what}", self.tail(name))
            if time.monotonic() > end:
                raise RigFailed(name, f"not ready after {limit_s:.0f} s: {what}", self.tail(name))
            time.sleep(0.05)

    def close(self, names: Sequence[str] = ()) -> None:
        """Stop ``names`` in that order, then the rest; returns when the keeper itself is gone."""
        if self._process.poll() is None:
            try:
                for name in names:
                    self.stop(name)
            except RigFailed:
                pass  # the keeper is gone already, and its children with it
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        with self._lock:
            pipe_in, pipe_out = self._process.stdin, self._process.stdout
            assert pipe_in is not None and pipe_out is not None
            try:
                pipe_in.write(json.dumps(request).encode() + b"\n")
                pipe_in.flush()
                line = pipe_out.readline()
            except (OSError, ValueError) as problem:
                raise RigFailed("keeper", f"gone: {problem}") from problem
            if not line:
                raise RigFailed("keeper", "gone", self.tail("keeper"))
            answer: dict[str, Any] = json.loads(line)
            return answer
