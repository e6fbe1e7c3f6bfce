"""Upgrades of several sets at a time by real workers, while workers are lost; people do what a script says."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rest_framework.test import APIClient

from controlplane.operations.models import FINISHED, Operation, Step
from deploy.rig import Api, workloads
from tests.chaos.engine.processes import Crew, Process
from tests.chaos.upgrade.orders import STOP, Order, Taken, lay_out, taken
from tests.chaos.upgrade.trespass import break_the_start, leave_a_ghost, run_ahead, tear_open
from tests.cluster.driving import Lockstep

Json = dict[str, Any]
FORWARD, ABORT, STOP_AND_RESUME = "forward", "abort", "stop and resume"
BREACH, ADOPT, CURE, LEAK = "breach", "adopt", "cure", "leak"
# What somebody else does once: at the first hold, or when the script's first worker is lost.
AT_HOLD = {BREACH: tear_open, ADOPT: run_ahead}
AT_LOSS = {CURE: break_the_start, LEAK: leave_a_ghost}
# What people do then.
ANSWERS = {(STOP_AND_RESUME, "stopped"): "resume", (BREACH, "hold-breached"): "retry"}
ANSWERS[ADOPT, "hold-breached"] = "adopt"
CONTINUE, RESTART = "continue", "restart"
QUICK: Json = {"holds": ["first-complete-row"], "stable_for": 0}


class Manned(Lockstep):
    """An installation whose steps are done by processes as soon as there is a crew."""

    crewed = False

    def turn(self) -> int:
        """Turn the crank only while nobody else does."""
        return 0 if self.crewed else super().turn()

    def api(self, user: Any) -> APIClient:
        """Signed in just now: high risk takes that for a vote."""
        client = super().api(user)
        session = client.session
        session["signed_in_at"] = datetime.now(UTC).isoformat()
        session.save()
        return client


@dataclass
class Script:
    """One set, its upgrade, and what is done to it.

    `way` is what people do at the first hold (let it go on, abort, stop and resume), or what others do to the set
    meanwhile. `asleep` is what happens while a worker of this upgrade is paused: others
    go on, a person aborts, or aborts and starts another upgrade of the same set.
    """

    name: str
    orders: Sequence[Order] = ()
    way: str = FORWARD
    asleep: str = CONTINUE
    options: Json = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    losses: list[Taken] = field(default_factory=list)
    acted: set[str] = field(default_factory=set)

    @property
    def operation(self) -> Operation:
        """The newest operation."""
        return self.operations[-1]

    @property
    def ended(self) -> bool:
        """Whether everything has come to its end and nobody sleeps."""
        finished = bool(self.operations) and all(one.state in FINISHED for one in self.operations)
        return finished and all(pause.woken for pause in self.pauses) and not self._restart_due()

    def _restart_due(self) -> bool:
        return self.asleep == RESTART and bool(self.pauses) and len(self.operations) < 2


@dataclass
class Pause:
    """A worker that is paused: its claim's number, and how many steps were done then."""

    order: Taken
    process: Process
    operation: int
    fence: int
    done: int
    woken: float = 0.0


@dataclass
class Wave:
    """All scripts side by side, on one crew."""

    lockstep: Manned
    crew: Crew
    folder: Path
    namespace: str
    scripts: list[Script] = field(default_factory=list)

    def run(self, scripts: Sequence[Script], *, limit_s: float = 150) -> None:
        """From fresh sets to the end of everything."""
        self.begin(scripts)
        self.until("every script has ended", lambda: all(one.ended for one in scripts), limit_s=limit_s)

    def begin(self, scripts: Sequence[Script]) -> None:
        """Create the sets and start the upgrades."""
        self.scripts.extend(scripts)
        client = self.lockstep.rig.client()
        for script in scripts:
            # Without GPUs: dozens of sets fit on a few nodes.
            roles = [workloads.role("prefill", 2, gpus=0), workloads.role("decode", 1, gpus=0)]
            client.create(workloads.disaggregated_set(script.name, self.namespace, roles))
        for script in scripts:
            workloads.wait_settled(client, self.namespace, script.name)
        for script in scripts:
            self.start(script, image="registry.example/engine:v2", orders=script.orders)

    def start(self, script: Script, *, image: str, orders: Sequence[Order] = ()) -> None:
        """Plan, lay out the orders, approve and start one upgrade of the script's set."""
        workload = self.lockstep.observe(self.namespace, script.name)
        draft = {"roles": {role: {"image": image} for role in ("prefill", "decode")}}
        plan = self.lockstep.draft(workload, draft, **{**QUICK, **script.options})
        assert plan["state"] == "ready", plan
        lay_out(self.folder, orders, subject=str(plan["id"]))
        script.operations.append(self.lockstep.start(plan))

    def until(self, what: str, look: Callable[[], object], *, limit_s: float) -> float:
        """Supervise until `look` is true; the seconds it took. AssertionError with the story otherwise."""
        begun = time.monotonic()
        while not look():
            waited = time.monotonic() - begun
            assert waited < limit_s, f"not within {limit_s} s: {what}\n{self.story()}"
            for script in self.scripts:
                self._turn(script)
            time.sleep(0.1)
        return time.monotonic() - begun

    def story(self) -> str:
        """Where everything stands."""
        asleep = [(s.name, p.order) for s in self.scripts for p in s.pauses if not p.woken]
        return f"asleep: {asleep}\n{self.lockstep.story()}\n{self.crew.logs()}"

    def _turn(self, script: Script) -> None:
        for operation in script.operations:
            operation.refresh_from_db()
        self._note_losses(script)
        for pause in script.pauses:
            if not pause.woken and (self._may_wake(script, pause) or self._nobody_else(pause)):
                pause.process.signal(signal.SIGCONT)
                pause.woken = time.time()
        if script.losses and script.way in AT_LOSS:
            self._trespass(script, AT_LOSS[script.way])
        if script.operations and script.operation.state in FINISHED:
            if script.asleep == RESTART and script.pauses and len(script.operations) < 2:
                self.start(script, image="registry.example/engine:v3")
            return
        if script.operations:
            self._act(script, script.operation)

    def _note_losses(self, script: Script) -> None:
        for operation in script.operations:
            for one in taken(self.folder, subject=operation.subject_id):
                if one in script.losses:
                    continue
                script.losses.append(one)
                if one.line.startswith(STOP):
                    done = _done(operation)
                    script.pauses.append(Pause(one, self._group(one), operation.pk, operation.fence, done))

    def _group(self, order: Taken) -> Process:
        group = os.getpgid(order.process)
        return next(w for w in self.crew.workers if w.running is not None and w.running.pid == group)

    def _may_wake(self, script: Script, pause: Pause) -> bool:
        operation = next(one for one in script.operations if one.pk == pause.operation)
        if script.asleep == RESTART:
            second = script.operations[1:]
            return bool(second) and (second[0].state in FINISHED or _at_hold(second[0]))
        if script.asleep == ABORT:
            return operation.state in FINISHED
        later = script.pauses[-1] is not pause and script.pauses[-1].operation == pause.operation
        return later or _done(operation) > pause.done or operation.state in FINISHED

    def _nobody_else(self, pause: Pause) -> bool:
        """Whether all workers sleep, this one the longest: its lease has run out, and nobody could take over."""
        asleep = sorted(p.order.at for s in self.scripts for p in s.pauses if not p.woken)
        return len(asleep) >= len(self.crew.workers) and asleep[0] == pause.order.at

    def _act(self, script: Script, operation: Operation) -> None:
        if script.asleep in (ABORT, RESTART) and script.pauses and operation.pk == script.pauses[0].operation:
            if operation.phase != "aborting":
                self._verb(script, operation, "abort")
        elif operation.state == "held":
            self._act_held(script, operation)
        elif _at_hold(operation):
            self._act_at_hold(script, operation)

    def _act_held(self, script: Script, operation: Operation) -> None:
        verb = ANSWERS.get((script.way, operation.finding.get("code", "")))
        assert verb, f"{operation} is held: {operation.finding}\n{self.story()}"
        self._verb(script, operation, verb)

    def _act_at_hold(self, script: Script, operation: Operation) -> None:
        if script.way in (ABORT, LEAK):
            self._verb(script, operation, "abort")
        elif script.way == STOP_AND_RESUME and "stop" not in script.acted:
            self._verb(script, operation, "stop")
        elif script.way in AT_HOLD and script.way not in script.acted:
            self._trespass(script, AT_HOLD[script.way])
        else:
            self.lockstep.let_go(operation)

    def _trespass(self, script: Script, deed: Callable[[Api, Operation], bool]) -> None:
        client = self.lockstep.rig.client("break-glass")
        if script.way not in script.acted and deed(client, script.operation):
            script.acted.add(script.way)

    def _verb(self, script: Script, operation: Operation, verb: str) -> None:
        said = self.lockstep.verb(operation, verb, {"reason": "chaos"})
        # Somebody was faster: looked at again in the next round.
        assert said.status_code in (200, 202, 409, 412), said.json()
        if said.status_code < 300:
            script.acted.add(verb)
        operation.refresh_from_db()


def _at_hold(operation: Operation) -> bool:
    waits = operation.waits_for
    at_hold = bool(waits.get("hold_key")) or str(waits.get("what", "")).startswith("approval ")
    return operation.state == "waiting" and at_hold


def _done(operation: Operation) -> int:
    return Step.objects.filter(operation=operation, state="done").count()
