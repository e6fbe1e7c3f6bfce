"""A program with controllers in it, as one part of the cluster: the LeaderWorkerSet manager, the controller manager.

Each controller has a queue of objects to look at. An object comes into it when something about it changes, when its
controller asked to look again, and after an error, later each time. A change does not wait for the end of a back-off.
What is seen, waits and fails is all forgotten when the program ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.settings import Times
from deploy.demo.emulator.controllers.view import View
from deploy.demo.emulator.memory import Change, Subscription
from deploy.demo.emulator.parts import Pace
from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.requests import User
from deploy.demo.emulator.store import Store

Doc = dict[str, Any]
Key = tuple[str, str]
log = logging.getLogger(__name__)
_LOG_LINES = 2000


class Crashed(Exception):
    """The program ended in the middle of its work."""


class Controller:
    """Looks at objects one at a time. ``watches`` are the kinds whose changes it hears of."""

    name: str
    user: User
    watches: tuple[str, ...]

    def begin(self) -> None:
        """Forget what an earlier run of the program remembered."""

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """Which objects, as (namespace, name), are to be looked at because of this one."""
        raise NotImplementedError

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """Bring one object forward. Returns after how many seconds to look again, None to wait for a change;
        an ApiProblem that gets out means again, later."""
        raise NotImplementedError


@dataclass
class _Crash:
    """After how many more writes of a kind ("": of any) the program ends."""

    writes: int
    kind: str


class Program:
    """Controllers that live and die together; a ``parts.Part``.

    ``lag_s`` may be changed at any time: what the program sees is that old. ``alive`` is False while it is stopped
    or has crashed.
    """

    def __init__(self, name: str, controllers: Sequence[Controller], times: Times) -> None:
        self.name = name
        self.controllers = tuple(controllers)
        self.times = times
        self.lag_s = 0.0
        self.alive = False
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._crash: _Crash | None = None

    def crash(self, *, after_writes: int = 0, kind: str = "") -> None:
        """Let the program end before its next write but ``after_writes`` (to objects of ``kind``, or at all).

        It comes back by itself, see Times.restart_s."""
        self._crash = _Crash(after_writes, kind)

    async def run(self, store: Store, pace: Pace) -> None:
        """Until cancelled."""
        while True:
            for controller in self.controllers:
                controller.begin()
            self.alive = True
            try:
                await _Run(self, store, pace).live()
            except Crashed:
                self.note("ended by a fault")
            finally:
                self.alive = False
            await asyncio.sleep(self.times.restart_s)

    def log(self, lines: int = 40) -> str:
        """The end of what it has written: its errors, as the real programs' logs tell them."""
        return "".join(f"{line}\n" for line in list(self._log)[-lines:])

    def note(self, text: str) -> None:
        """Write a line into its log."""
        self._log.append(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}")

    async def gate(self, pace: Pace, kind: str) -> None:
        """Before each write."""
        if self.times.between_writes_s:
            await asyncio.sleep(self.times.between_writes_s)
        await pace.going()
        crash = self._crash
        if crash is not None and crash.kind in ("", kind):
            if crash.writes == 0:
                self._crash = None
                raise Crashed
            crash.writes -= 1


Item = tuple[Controller, Key]


class _Run:
    """One life of a program."""

    def __init__(self, program: Program, store: Store, pace: Pace) -> None:
        self._program = program
        self._store = store
        self._pace = pace
        self._kinds = tuple(
            dict.fromkeys(
                kind for each in program.controllers for kind in each.watches if kind in store.kinds
            )
        )
        self._view = View(store, self._kinds)
        self._hands = {
            each: Hands(store.acting_as(each.user), self._view, self._gate) for each in program.controllers
        }
        self._queue: dict[Item, None] = {}
        self._later: dict[Item, float] = {}
        self._failures: dict[Item, int] = {}
        self._now = asyncio.get_running_loop().time

    async def _gate(self, verb: str, kind: str, namespace: str, name: str) -> None:
        await self._program.gate(self._pace, kind)

    async def live(self) -> None:
        """Until cancelled or crashed."""
        with self._store.subscribe(*self._kinds) as changes:
            for kind in self._kinds:
                for doc in self._store.list(kind):
                    self._wake(kind, doc)
            while True:
                await self._pace.going()
                self._hear(changes.drain())
                if self._queue:
                    item = next(iter(self._queue))
                    del self._queue[item]
                    await self._look(item)
                    await asyncio.sleep(0)
                else:
                    await self._rest(changes)

    async def _rest(self, changes: Subscription) -> None:
        moments = [*self._later.values()]
        if (seen := self._view.next_at) is not None:
            moments.append(seen)
        limit = max(0.0, min(moments) - self._now()) if moments else None
        self._hear(await changes.next(limit))

    def _hear(self, changes: list[Change]) -> None:
        lag_s = self._program.lag_s
        self._view.lag(lag_s)
        for change in self._view.take(changes, self._now(), lag_s):
            if change.old is not None:
                self._wake(change.kind.ref, change.old)
            self._wake(change.kind.ref, change.new)
        now = self._now()
        for item in [item for item, due in self._later.items() if due <= now]:
            del self._later[item]
            self._queue[item] = None

    def _wake(self, kind: str, doc: Doc) -> None:
        for controller in self._program.controllers:
            if kind in controller.watches:
                for key in controller.keys(kind, doc):
                    self._queue[(controller, key)] = None

    async def _look(self, item: Item) -> None:
        controller, key = item
        try:
            again = await controller.reconcile(key, self._hands[controller])
        except ApiProblem as problem:
            self._program.note(f"ERROR Reconciler error {controller.name} {'/'.join(key)}: {problem}")
            again = self._back_off(item)
        except Crashed:
            raise
        except Exception:
            log.exception("%s %s", controller.name, "/".join(key))
            again = self._back_off(item)
        else:
            self._failures.pop(item, None)
        if again is not None:
            due = self._now() + again
            self._later[item] = min(due, self._later.get(item, due))

    def _back_off(self, item: Item) -> float:
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        times = self._program.times
        return min(times.back_off_cap_s, times.back_off_s * 2.0 ** min(failures, 60))
