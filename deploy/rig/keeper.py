"""The process that owns the programs of one rig, so that nothing outlives whoever started it.

Run as a script by :class:`deploy.rig.parts.Keeper` (standard library only, starts in a few milliseconds). It
reads one JSON request per line from stdin and answers with one line on stdout. It stops everything, in the
order in which it is told to stop or else the newest first, when stdin closes or its starter is gone (a
pidfd, because a fork of the starter can hold the pipe open). Its children die with it (PR_SET_PDEATHSIG):
even SIGKILL to both leaves nothing. At its own end it also ends what they started elsewhere.

Requests: ``{"do": "start", "name", "argv", "env", "log"}`` · ``{"do": "stop", "name", "grace"}`` ·
``{"do": "signal", "name", "signal"}`` · ``{"do": "poll", "name"}`` · ``{"do": "pids"}``.
Answers: ``{"ok": true, ...}`` or ``{"error": "..."}``.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_DEFAULT_GRACE = 2.0
MARK = "LOCKSTEP_RIG_KEEPER"


class Children:
    """The running programs by name, in the order of their start."""

    def __init__(self) -> None:
        self._mark = f"{os.getpid()}.{time.monotonic_ns()}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, request: dict[str, Any]) -> dict[str, Any]:
        """Start one program in a process group of its own, its output appended to ``log``."""
        name = request["name"]
        if self._alive(name):
            raise RuntimeError(f"{name} runs already")
        keeper = os.getpid()
        with Path(request["log"]).open("ab") as log:
            child = subprocess.Popen(
                request["argv"],
                env={**request["env"], MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: _die_with(keeper),
            )
        self._running.pop(name, None)
        self._running[name] = child
        return {"pid": child.pid}

    def stop(self, request: dict[str, Any]) -> dict[str, Any]:
        """SIGTERM, then SIGKILL after ``grace`` seconds; returns once the program is gone."""
        child = self._running.pop(request["name"], None)
        if child is None or child.poll() is not None:
            return {"ran": False}
        # A paused program cannot see SIGTERM.
        _signal_group(child.pid, signal.SIGCONT)
        _signal_group(child.pid, signal.SIGTERM)
        try:
            child.wait(request.get("grace", _DEFAULT_GRACE))
        except subprocess.TimeoutExpired:
            pass
        _signal_group(child.pid, signal.SIGKILL)
        child.wait()
        return {"ran": True}

    def signal(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one signal to a running program (SIGSTOP, SIGCONT, SIGKILL)."""
        child = self._running.get(request["name"])
        if child is None or child.poll() is not None:
            raise RuntimeError(f"{request['name']} does not run")
        _signal_group(child.pid, request["signal"])
        return {}

    def poll(self, request: dict[str, Any]) -> dict[str, Any]:
        """Whether a program runs, and its exit status where it has ended."""
        child = self._running.get(request["name"])
        return {
            "runs": child is not None and child.poll() is None,
            "status": child.returncode if child else None,
        }

    def pids(self, request: dict[str, Any]) -> dict[str, Any]:
        """The process ids of everything that runs."""
        return {"pids": {name: child.pid for name, child in self._running.items() if child.poll() is None}}

    def stop_all(self) -> None:
        """Newest first: clients were started after the servers they use."""
        for name in reversed(list(self._running)):
            self.stop({"name": name})
        self._end_strays()

    def _end_strays(self) -> None:
        """What a program started in a session of its own and did not end: found by its environment."""
        end_processes_with(MARK, self._mark)

    def _alive(self, name: str) -> bool:
        child = self._running.get(name)
        return child is not None and child.poll() is None


def end_processes_with(name: str, value: str, *, within_s: float = 5.0) -> list[int]:
    """Kill the processes whose environment has a variable with this value; those that have not gone in time."""
    end = time.monotonic() + within_s
    while (left := processes_with(name, value)) and time.monotonic() < end:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    return left


def processes_with(name: str, value: str) -> list[int]:
    """The processes (of this user) whose environment has a variable with this value."""
    entry, found = f"{name}={value}".encode(), []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and entry in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass  # ended meanwhile, or somebody else's
    return found


def _die_with(keeper: int) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:  # the keeper ended between fork and prctl
        os._exit(1)


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def _answer(children: Children, line: bytes) -> dict[str, Any]:
    request = json.loads(line)
    try:
        return {"ok": True, **getattr(children, request["do"])(request)}
    except (OSError, RuntimeError) as problem:
        return {"error": str(problem)}


def _serve(children: Children, starter: int) -> None:
    """Answer requests until the pipe closes or the starter is gone."""
    with selectors.DefaultSelector() as events:
        events.register(sys.stdin.buffer, selectors.EVENT_READ, "request")
        events.register(os.pidfd_open(starter), selectors.EVENT_READ, "gone")
        waiting = b""
        while True:
            ready = {key.data for key, _ in events.select()}
            if "gone" in ready:
                return
            chunk = os.read(0, 1 << 20)
            if not chunk:
                return
            *lines, waiting = (waiting + chunk).split(b"\n")
            for line in lines:
                sys.stdout.write(json.dumps(_answer(children, line)) + "\n")
                sys.stdout.flush()


def main() -> None:
    """``keeper.py STARTER_PID [FOLDER_TO_REMOVE]``."""
    # A terminal's Ctrl-C reaches the whole foreground group; the starter decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    children = Children()
    try:
        _serve(children, int(sys.argv[1]))
    finally:
        children.stop_all()
        if len(sys.argv) > 2:
            shutil.rmtree(sys.argv[2], ignore_errors=True)


if __name__ == "__main__":
    main()
