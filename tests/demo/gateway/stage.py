"""What the gateway of these tests stands between: a Kubernetes API, routers and engines, in one event loop.

Addresses are of this process's own piece of 127.0.0.0/8, so that test runs beside each other do not meet.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# One round for all stages of a process: two may stand at a time.
_HOSTS = itertools.cycle(range(2, 255))


class Stage:
    """An event loop in a thread of its own, and addresses to listen at."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        # 127.1 to 127.200 belong to rigs.
        process = os.getpid()
        self._net = f"127.{201 + process % 50}.{process // 50 % 250}"

    def address(self) -> str:
        """A loopback address that nobody else uses now."""
        return f"{self._net}.{next(_HOSTS)}"

    def run(self, work: Coroutine[Any, Any, T], limit_s: float = 20.0) -> T:
        """Run a coroutine in the loop to its end."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(limit_s)

    def call(self, function: Any, *arguments: Any) -> None:
        """Call a plain function in the loop."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """End the loop."""

        async def cancel() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run(cancel())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
