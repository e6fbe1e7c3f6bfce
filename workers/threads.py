"""Work of the watch process on a thread of its own."""

from __future__ import annotations

import threading
from typing import Self


class OnThread:
    """Begins at `start`. Who derives from it says in `_run` what it does, and returns from there when told to end."""

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def join(self, seconds: float) -> bool:
        """Wait for the end, after it has been told to; whether it has come."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        raise NotImplementedError
