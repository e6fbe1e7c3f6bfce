"""``child.py PARENT ARGV...``: becomes the program, which dies with its parent.

Standard library only, and a process of its own: nothing may run between fork and exec in a parent with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # the parent ended before prctl
        os._exit(1)
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as problem:
        print(f"{sys.argv[2]}: {problem.strerror}", file=sys.stderr)
        os._exit(128)  # as a container runtime counts a start that failed


if __name__ == "__main__":
    main()
