"""Places where a test kills or pauses a worker. Nothing happens unless LOCKSTEP_FAILPOINTS names a folder.

A file `<point>.<step name>` in it with the text `kill` or `stop` is taken by the first process that comes
there, and by that one alone (an atomic rename). `<point>.<step name>@<subject>` is for the operation on that
subject only. A second word limits calls to one verb (`kill replace`, `stop dry-run patch`), or to any real
write (`kill write`); a number behind it says which of such calls (`kill write 3`: the third from now on; count
only in files of one subject, where one process at a time can come). Further lines are further orders, each in
force when the one above was taken. `kill` ends this process as a power cut would; `stop` pauses the whole
process group, so that neither this process nor the parent that watches over it moves until somebody sends
SIGCONT.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

BEFORE_CALL = "before-call"
AFTER_CALL = "after-call"
BEFORE_COMMIT = "before-commit"
WRITES = frozenset({"create", "replace", "patch", "delete"})


def reach(point: str, step: str, *, subject: str = "", verb: str = "") -> None:
    """Come to a point of a step; may not return for a long time, or ever."""
    folder = os.environ.get("LOCKSTEP_FAILPOINTS")
    if not folder:
        return
    for name in (f"{point}.{step}", f"{point}.{step}@{subject}"):
        _come_to(Path(folder) / name, verb)


def _come_to(order: Path, verb: str) -> None:
    try:
        first, _, rest = order.read_text(encoding="ascii").strip().partition("\n")
    except FileNotFoundError:
        return
    action, _, call = first.strip().partition(" ")
    only, count = _which(call)
    if only and verb != only and not (only == "write" and verb in WRITES):
        return
    if count > 1:
        _lay_out(order, f"{action} {only} {count - 1}\n{rest}")
    elif _taken(order):
        if rest:
            _lay_out(order, rest)
        _carry_out(action)


def _which(call: str) -> tuple[str, int]:
    """`replace 2` → ("replace", 2), `dry-run patch` → ("dry-run patch", 1)."""
    only, _, last = call.rpartition(" ")
    return (only, int(last)) if last.isdigit() else (call, 1)


def _lay_out(order: Path, text: str) -> None:
    draft = order.with_name(f".{order.name}.{os.getpid()}")
    draft.write_text(text, encoding="ascii")
    draft.rename(order)


def _taken(order: Path) -> bool:
    try:
        order.rename(order.with_name(f"{order.name}.taken.{os.getpid()}.{time.time():.3f}"))
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
