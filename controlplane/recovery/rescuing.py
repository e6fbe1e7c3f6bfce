"""A restore with nothing but a kubeconfig: no database, no workers. The same parts in the same order as an operation.

It takes the installation Lease, which raises every fence number, writes what it does into a journal ConfigMap, and
leaves the Lease with itself: the installation that comes back may read and not write until a person takes over.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NoReturn

from controlplane.fleet.parameter import NAMESPACE as LOCKSTEP_NAMESPACE
from controlplane.holds.fencing import fence_set
from controlplane.holds.guards import guard_problems
from controlplane.holds.live import read_parameter
from controlplane.holds.parameter import fence_of, is_holding
from controlplane.holds.scalers.pausing import GIVE_BACK, PAUSE
from controlplane.holds.writer import SetLost, SetWriter
from controlplane.kube.client import Kube
from controlplane.kube.errors import KubeError
from controlplane.kube.resources import CONFIG_MAPS, LEASES
from controlplane.operations.contract import Done, Hold, Outcome, PlannedStep, Wait
from controlplane.operations.lease import (
    LEASE_NAME,
    LEASE_NAMESPACE,
    RESCUE,
    holder_of,
    lease_body,
    transitions_of,
)
from controlplane.recovery.ordering import restore_steps
from controlplane.recovery.parts import scaling, workload
from controlplane.recovery.parts.registry import PARTS as OPERATION_PARTS
from controlplane.recovery.parts.task import Task, may_touch
from controlplane.recovery.picture import picture_of
from controlplane.recovery.reading import read_seen
from policy.fencing import first_number
from policy.recovery.order import Options, Order, Part, order_parts

Json = dict[str, Any]
Say = Callable[[str], None]

# A rescue has no database to remember originals in: the objects keep them. Nor can it prove a hold that does not bind
# its own account.
PARTS: dict[str, tuple[Callable[..., Outcome], bool]] = {
    **OPERATION_PARTS,
    "recovery.prove_hold": (workload.trust_hold, False),
    PAUSE: (scaling.pause_alone, True),
    GIVE_BACK: (scaling.give_back_alone, True),
}
TRIES = 5
PAUSE_S = 2.0


class RescueStopped(Exception):
    """The rescue cannot go on; run again after mending what it says, and it goes on where it stands."""


@dataclass(slots=True)
class Rescue:
    """One rescue of one set to one document. `memory` is what an operation would remember."""

    kube: Kube
    document: Json
    options: Options
    say: Say
    guards: Sequence[Json]  # as shipped
    stable_for: float = 30.0
    stuck_after: float = 1800.0
    leave_scalers: bool = False  # go on beside scalers that cannot be paused
    identity: str = field(default_factory=lambda: f"{RESCUE}{uuid.uuid4()}")
    number: int = 0
    journal: Json = field(default_factory=dict)
    memory: Json = field(default_factory=dict)

    def look(self) -> Order:
        """In which order the parts would be put back now. Raises RescueStopped where the set is gone."""
        named = self.document["set"]
        seen = read_seen(self.kube, named["namespace"], named["name"], recorded=self.document)
        picture = picture_of(self.document, seen)
        if picture is None or seen.document["set"]["uid"] != named["uid"]:
            raise RescueStopped(f"{named['namespace']}/{named['name']} is not the set that was recorded.")
        return order_parts(picture, self.options)

    def run(self) -> Json:
        """Take the Lease, put every part back, verify. Returns what runs now. Raises RescueStopped."""
        order = self.look()
        if order.refusals:
            raise RescueStopped("; ".join(f"{each.sentence} ({each.next_action})" for each in order.refusals))
        for part in order.parts:
            self._look_in_front(part)
        self._take_lease()
        self._inherit()
        self._open_journal(order)
        own = [step for step in restore_steps(order.parts) if step.name in PARTS]
        steps = [*own, PlannedStep("recovery.verify")]
        while steps:
            step, *steps = steps
            done = self._carry_out(step)
            self._note(step, done)
            steps = [*done.append, *steps]
        self._close_journal("succeeded")
        return dict(self.memory.get("bits") or {})

    def _carry_out(self, step: PlannedStep) -> Done:
        part, writes = PARTS[step.name]
        begun, failures = datetime.now(UTC), 0
        args = {key: value for key, value in step.args.items() if key != "ends_part"}
        self.say(f"{step.name} {json.dumps(args) if args else ''}".rstrip())
        while True:
            try:
                outcome = self._once(step, part, writes, begun, args)
            except KubeError as error:
                failures += 1
                if failures >= TRIES:
                    self._stop(f"{step.name}: {error}")
                self.say(f"  {error}; trying again")
                time.sleep(PAUSE_S)
                continue
            if isinstance(outcome, Hold):
                self.memory.update(outcome.remember)
                if step.name == PAUSE and self.leave_scalers:
                    self.say(
                        f"  {outcome.sentence} Left as it is: while the hold stands it is refused its writes"
                    )
                    return Done(result={"left": outcome.sentence})
                option = " Or go on beside it with --leave-scalers." if step.name == PAUSE else ""
                self._stop(f"{outcome.sentence} {outcome.next_action}{option}")
            self.memory.update(outcome.remember)
            if isinstance(outcome, Done):
                if "drained" in outcome.remember:  # noted before weights are taken away, or put back
                    self._write_journal({"drained": json.dumps(outcome.remember["drained"], sort_keys=True)})
                return outcome
            failures = 0
            self.say(f"  waits for {outcome.what}")
            time.sleep(min(max(outcome.seconds, 0.2), PAUSE_S))

    def _once(
        self, step: PlannedStep, part: Callable[..., Outcome], writes: bool, begun: datetime, args: Json
    ) -> Done | Wait | Hold:
        self._still_ours()
        writer = self._writer()
        if writes:
            finding = fence_set(writer, may_touch=lambda parameter: may_touch(writer, self.memory, parameter))
            if finding is not None:
                return finding
        try:
            outcome = part(self._task(step, begun), **args)
        except SetLost as lost:
            return lost.finding
        if not isinstance(outcome, Done | Wait | Hold):
            raise RescueStopped(f"{step.name} ended in {type(outcome).__name__}.")
        return outcome

    def _task(self, step: PlannedStep, begun: datetime) -> Task:
        return Task(
            writer=self._writer(),
            document=self.document,
            memory=self.memory,
            now=datetime.now(UTC),
            since=begun,
            step=f"{step.name}@{begun.isoformat()}",
            stable_for=self.stable_for,
            stuck_after=self.stuck_after,
            guards=self.guards,
        )

    def _writer(self) -> SetWriter:
        named = self.document["set"]
        return SetWriter(
            kube=self.kube,
            namespace=named["namespace"],
            name=named["name"],
            uid=named["uid"],
            operation=self.identity,
            installation=self.identity,
            fence=self.number,
        )

    # --- Lease, inherited hold, journal

    def _take_lease(self) -> None:
        """Ours from now on; the number is above every one that the installation can draw without taking over."""
        lease = self.kube.find(LEASES, LEASE_NAME, LEASE_NAMESPACE)
        transitions = transitions_of(lease) + 1
        wanted = lease_body(holder=self.identity, transitions=transitions, at=datetime.now(UTC))
        if lease is None:
            self.kube.create(LEASES, wanted)
        else:
            self.kube.replace(LEASES, {**lease, "spec": {**(lease.get("spec") or {}), **wanted["spec"]}})
        self.number = first_number(transitions)
        self.say(
            f"Lease {LEASE_NAMESPACE}/{LEASE_NAME} taken from {holder_of(lease) or 'nobody'} as {self.identity}"
        )

    def _still_ours(self) -> None:
        if holder_of(self.kube.find(LEASES, LEASE_NAME, LEASE_NAMESPACE)) != self.identity:
            raise RescueStopped("Somebody else has taken the Lease meanwhile.")

    def _inherit(self) -> None:
        """A hold that stands is taken over, whoever wrote it: that program may not write any more."""
        named = self.document["set"]
        parameter = read_parameter(self.kube, named["namespace"], named["name"])
        if parameter is not None and is_holding(parameter):
            data = parameter["data"]
            self.memory["inherits"] = data.get("operation")
            self.memory["inherits_installation"] = data.get("installation")
            self.number = max(self.number, fence_of(parameter))
            self.memory["holding"] = True

    def _look_in_front(self, part: Part) -> None:
        """Policies that are not as shipped stop what needs them before anything is written, and are said otherwise."""
        problems = guard_problems(self.kube, self.guards) if part.name == "workload" else []
        if part.way == "anew" and (stopped := workload.unenforced(problems)):
            raise RescueStopped(f"{stopped.sentence} {stopped.next_action}")
        for problem in problems:
            self.say(f"goes on, although {problem}: going back needs no hold")
        self.memory["told_guards"] = True

    def _drained_before(self) -> str:
        """Weights that an earlier rescue of this set took away and has not given back, from its journal."""
        named = self.document["set"]
        journals = self.kube.list(
            CONFIG_MAPS, LOCKSTEP_NAMESPACE, label_selector="lockstep.dev/rescue=true"
        ).items
        own = [
            each["data"]
            for each in journals
            if each["data"].get("set") == f"{named['namespace']}/{named['name']}"
        ]
        newest: Json = max(own, key=lambda data: str(data.get("began")), default={})
        return str(newest.get("drained") or "{}")

    def _open_journal(self, order: Order) -> None:
        named = self.document["set"]
        drained = self._drained_before()
        self.memory["drained"] = json.loads(drained)
        name = f"rescue-{named['namespace']}.{named['name']}-{self.number // first_number(1)}"
        self.journal = self.kube.create(
            CONFIG_MAPS,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": name,
                    "namespace": LOCKSTEP_NAMESPACE,
                    "labels": {"lockstep.dev/rescue": "true", "app.kubernetes.io/managed-by": "lockstep"},
                },
                "data": {
                    "by": self.identity,
                    "began": _moment(),
                    "set": f"{named['namespace']}/{named['name']}",
                    "revision": self.document["workload"]["revision"],
                    "parts": "\n".join(f"{part.name}: {part.reason}" for part in order.parts),
                    "outcome": "under way",
                    "drained": drained,
                },
            },
        )
        self.say(f"journal {LOCKSTEP_NAMESPACE}/{name}")

    def _note(self, step: PlannedStep, done: Done) -> None:
        lines = self.journal["data"].get("done", "")
        result = json.dumps(done.result, sort_keys=True, default=str)[:500]
        self._write_journal({"done": f"{lines}{_moment()} {step.name} {result}\n"})

    def _close_journal(self, outcome: str, **more: str) -> None:
        bits: Mapping[str, Any] = self.memory.get("bits") or {}
        ended = {"outcome": outcome, "ended": _moment(), "bits": str(bits.get("verdict") or ""), **more}
        self._write_journal(ended)

    def _write_journal(self, data: Mapping[str, str]) -> None:
        body = {**self.journal, "data": {**self.journal["data"], **data}}
        self.journal = self.kube.replace(CONFIG_MAPS, body)

    def _stop(self, said: str) -> NoReturn:
        self._close_journal("stopped", why=said[:2000])
        raise RescueStopped(said)


def _moment() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
