"""Places where a test kills or pauses a worker. Nothing happens unless LOCKSTEP_FAILPOINTS names a folder.

A file `<point>.<step name>` in it with the text `kill` or `stop` is taken by the first process that comes
there, and by that one alone (an atomic rename). A second word limits calls to one verb (`kill replace`, `stop
dry-run patch`), or to any real write (`kill write`). `kill` ends this process as a power cut would; `stop`
pauses the whole process group, so that neither this process nor the parent that watches over it moves until
somebody sends SIGCONT.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

BEFORE_CALL = "before-call"
AFTER_CALL = "after-call"
BEFORE_COMMIT = "before-commit"
WRITES = frozenset({"create", "replace", "patch", "delete"})


def reach(point: str, step: str, *, verb: str = "") -> None:
    """Come to a point of a step; may not return for a long time, or ever."""
    folder = os.environ.get("LOCKSTEP_FAILPOINTS")
    if not folder:
        return
    order = Path(folder) / f"{point}.{step}"
    try:
        action, _, only = order.read_text(encoding="ascii").strip().partition(" ")
    except FileNotFoundError:
        return
    if only and verb != only and not (only == "write" and verb in WRITES):
        return
    if _taken(order):
        _carry_out(action)


def _taken(order: Path) -> bool:
    try:
        order.rename(order.with_name(f"{order.name}.taken.{os.getpid()}"))
    except FileNotFoundError:
        return False
    return True


def _carry_out(action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.killpg(os.getpgrp(), signal.SIGSTOP)
    else:
        raise ValueError(f"a failpoint says kill or stop, not {action!r}")
