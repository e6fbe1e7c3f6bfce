"""Parts of the cluster that run beside the API: controllers, and what plays kubelets. Each can be paused and stopped.

A part is any object with a ``name`` and ``async run(store, pace)``. It works in rounds and awaits ``pace.going()``
before each, so that a paused part does nothing, as after SIGSTOP. A part that raises is started again after a
back-off, as a crashed program would be.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from deploy.demo.emulator.store import Store

log = logging.getLogger(__name__)
_BACK_OFF_S = 1.0


class Pace:
    """Whether a part may go on."""

    def __init__(self) -> None:
        self._going = asyncio.Event()
        self._going.set()

    async def going(self) -> None:
        """Return at once, or when the part is resumed."""
        await self._going.wait()

    @property
    def state(self) -> str:
        """running or paused."""
        return "running" if self._going.is_set() else "paused"

    def pause(self) -> None:
        """Hold the part before its next round."""
        self._going.clear()

    def resume(self) -> None:
        """Let it go on."""
        self._going.set()


class Part(Protocol):
    """A controller."""

    name: str

    async def run(self, store: Store, pace: Pace) -> None:
        """Work until cancelled. Nothing may be remembered from an earlier run: a restart begins by listing."""


class Parts:
    """The running parts of one emulator, by name; to be used on its event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parts: dict[str, Part] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._paces: dict[str, Pace] = {}

    def add(self, part: Part) -> None:
        """Run a part."""
        self._parts[part.name] = part
        self.start(part.name)

    def start(self, name: str) -> None:
        """Run a stopped part again. KeyError for one that is not known."""
        part = self._parts[name]
        if name not in self._tasks:
            self._paces[name] = Pace()
            self._tasks[name] = asyncio.get_running_loop().create_task(
                self._run(part, self._paces[name]), name=name
            )

    async def stop(self, name: str) -> None:
        """End a part; returns when it has ended."""
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def stop_all(self) -> None:
        """End every part, the last started first."""
        for name in reversed(list(self._tasks)):
            await self.stop(name)

    def pause(self, name: str) -> None:
        """Hold a part. KeyError for one that is not known."""
        self._paces[name].pause()

    def resume(self, name: str) -> None:
        """Let a paused part go on."""
        self._paces[name].resume()

    def states(self) -> dict[str, str]:
        """Every part that was added: running, paused or stopped."""
        return {
            name: "stopped" if name not in self._tasks else self._paces[name].state for name in self._parts
        }

    async def _run(self, part: Part, pace: Pace) -> None:
        while True:
            try:
                await part.run(self._store, pace)
                return
            except Exception:
                log.exception("part %s ended by itself and is started again", part.name)
                await asyncio.sleep(_BACK_OFF_S)
