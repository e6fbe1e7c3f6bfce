"""What must hold after any chaos, from the independent history, the audit rows and what stands at the end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from controlplane.approvals.models import ChangeRequest
from controlplane.audit.models import AuditEvent
from controlplane.audit.services import verify_chain
from controlplane.holds.live import FENCE_ANNOTATION
from controlplane.operations.models import Operation, OperationTarget, Step
from controlplane.upgrades.models import Plan, UpdateRecord
from policy.canonical import digest
from policy.rollout.box import Box, Key, box_from_data
from tests.chaos.upgrade.history import CHILDREN, PARAMETERS, SERVICES, SETS, History, Written
from tests.chaos.upgrade.trespass import GHOST

Json = dict[str, Any]
LABEL = "disaggregatedset.x-k8s.io/"
HOLD_LABEL = "lockstep.dev/hold"
# The API server's admission reads parameters from a cache: for so long a write may be judged by the one before.
CACHE_S = 2.0
RESUMED_WITHIN_S = 30.0
TAKEN_BACK_WITHIN_S = 2.0


@dataclass
class Finding:
    """Everything that is wrong with one set and the operations on it."""

    name: str
    namespace: str
    history: History
    operations: Sequence[Operation]
    adopted: bool = (
        False  # a person took counts as they stood: rows were renumbered, one old group went by force
    )
    problems: list[str] = field(default_factory=list)

    # --- what was written

    def of_set(self) -> list[Written]:
        """Writes of the set itself."""
        return self.history.writes(lambda w: w.kind == SETS and w.name == self.name)

    def parameters(self) -> list[Written]:
        """Writes of its hold parameter."""
        name = f"hold-{self.namespace}.{self.name}"
        return self.history.writes(lambda w: w.kind == PARAMETERS and w.name == name)

    def children(self) -> list[Written]:
        """Writes of its LeaderWorkerSets."""
        return self.history.writes(
            lambda w: w.kind == CHILDREN and _label(w, "name") == self.name and _label(w, "role") != GHOST
        )

    def services(self) -> list[Written]:
        """Writes of its private Services."""
        return self.history.writes(lambda w: w.kind == SERVICES and _label(w, "name") == self.name)

    # --- verdicts

    def judge(self) -> list[str]:
        """All problems; empty where everything held."""
        self._steps_once()
        self._numbers_grow()
        self._counts_stay_in_the_box()
        self._totals_stay_within_surge()
        self._roles_written_once()
        self._services_made_once()
        for operation in self.operations:
            self._proved_before_anything(operation)
            if not self.adopted:
                self._no_unapproved_row(operation)
            self._nothing_left(operation)
        self._ends_where_it_should()
        return self.problems

    def _say(self, problem: str) -> None:
        self.problems.append(f"{self.name}: {problem}")

    def _steps_once(self) -> None:
        for operation in self.operations:
            done = Step.objects.filter(operation=operation, state="done")
            commits = Counter(
                row.after["step"]
                for row in _audit(operation)
                if row.actor_kind == "worker" and row.after.get("effect") in ("done", "finish")
            )
            if commits != dict.fromkeys(done.values_list("index", flat=True), 1):
                self._say(f"{operation} committed steps {dict(commits)}")
            record = UpdateRecord.objects.get(operation=operation)
            closes = AuditEvent.objects.filter(action="update-record.close", target_id=str(record.pk))
            said = [event.after["outcome"] for event in closes.order_by("id")]
            if (
                record.outcome != operation.state
                or len(said) != len(set(said))
                or said[-1:] != [record.outcome]
            ):
                self._say(
                    f"{operation} {operation.state}: its update record says {record.outcome}, closed as {said}"
                )

    def _numbers_grow(self) -> None:
        for what, numbers in (
            ("parameter", [int(w.body["data"]["fence"]) for w in self.parameters()]),
            ("set", [_number(w) for w in self.of_set()]),
        ):
            if numbers != sorted(numbers):
                self._say(f"fence numbers on the {what} went down: {numbers}")

    def _counts_stay_in_the_box(self) -> None:
        """Every change of a count was allowed by the box that stood, or by the one before within CACHE_S."""
        counts: dict[Key, int] = {}
        boxes: list[tuple[Written, Box | None]] = []
        for written in sorted([*self.parameters(), *self.children()], key=lambda w: w.version):
            if written.kind == PARAMETERS:
                boxes.append((written, _box(written)))
                continue
            key = _key(written)
            before = counts.get(key, 0)
            after = 0 if written.event == "DELETED" else int(written.body["spec"]["replicas"])
            counts[key] = after
            by_force = self.adopted and (key[2], before, after) == ("prefill", 2, 1)
            if after == before or not boxes or by_force:
                continue
            allowed = [boxes[-1][1]]
            for (older, box), (newer, _) in zip(boxes, boxes[1:], strict=False):
                if newer.at > written.at - CACHE_S and older is not boxes[-1][0]:
                    allowed.append(box)
            if not any(_allows(box, key, before, after) for box in allowed):
                self._say(f"{'/'.join(key)} went {before} -> {after} outside of {boxes[-1][1]}")

    def _totals_stay_within_surge(self) -> None:
        counts: dict[Key, int] = {}
        versions = [w.body["spec"]["roles"] for w in self.of_set()]
        peaks = [(role["name"], _peak(role)) for roles in versions for role in roles]
        allowed = {name: max(peak for other, peak in peaks if other == name) for name, _ in peaks}
        for written in self.children():
            key = _key(written)
            counts[key] = 0 if written.event == "DELETED" else int(written.body["spec"]["replicas"])
            total = sum(count for other, count in counts.items() if other[2] == key[2])
            if total > allowed[key[2]]:
                self._say(f"{total} groups of {key[2]} stood, at most {allowed[key[2]]} with surge: {counts}")

    def _roles_written_once(self) -> None:
        seen = [digest(w.body["spec"]["roles"]) for w in self.of_set()]
        changes = sum(a != b for a, b in zip(seen, seen[1:], strict=False))
        wanted = 0
        for operation in self.operations:
            names = [row.action for row in _audit(operation) if row.after.get("effect") == "done"]
            forward = names.count("upgrades.write_roles") or self._forward_was_written(operation)
            wanted += forward + names.count("upgrades.settle_roles")
            wanted += bool(forward) if operation.state == "aborted" else 0
        if changes != wanted:
            self._say(f"spec.roles changed {changes} times instead of {wanted}")
        first, last = self.of_set()[0].body["metadata"], self.of_set()[-1].body["metadata"]
        if last["generation"] - first["generation"] != wanted:
            self._say(f"generation went {first['generation']} -> {last['generation']}, not up by {wanted}")

    def _forward_was_written(self, operation: Operation) -> int:
        """1 where an abort came between the write of the new roles and its commit."""
        content = Plan.objects.get(pk=operation.memory["plan"]).content or {}
        images = {_image(role) for role in content["roles_after"]}
        return int(any({_image(r) for r in w.body["spec"]["roles"]} == images for w in self.of_set()))

    def _services_made_once(self) -> None:
        new = {operation.memory["new"] for operation in self.operations}
        lives: dict[str, list[float]] = {}  # name → how long each incarnation has stood
        born: dict[str, float] = {}
        for written in [w for w in self.services() if _label(w, "revision") in new]:
            if written.event == "ADDED":
                born[written.name] = written.at
                lives.setdefault(written.name, []).append(float("inf"))
            elif written.event == "DELETED":
                lives[written.name][-1] = written.at - born[written.name]
        for name, stood in lives.items():
            # A worker that wakes up after an abort may still make one, and takes it back in the same breath.
            if len([life for life in stood if life > TAKEN_BACK_WITHIN_S]) > 1:
                self._say(f"Service {name} was made again; its lives: {stood}")
        living: dict[str, bool] = {}
        for written in self.services():
            living[written.name] = written.event != "DELETED"
        revisions = {key[1] for key in self._final_counts()}
        for name, lives in living.items():
            if lives and not any(f"-{revision}-" in name for revision in revisions):
                self._say(f"Service {name} was left behind; revisions: {sorted(revisions)}")

    def _proved_before_anything(self, operation: Operation) -> None:
        proved = _fence_of_done(operation, "upgrades.prove_hold")
        for written in self._held_by(operation):
            box = _box(written)
            fed = (
                {k: n for k, n in box.ceilings.items() if k[1] != operation.memory["old"] and n}
                if box
                else {}
            )
            if fed and int(written.body["data"]["fence"]) <= (proved or 10**30):
                self._say(f"{operation}: {fed} was allowed before the hold was proved")

    def _no_unapproved_row(self, operation: Operation) -> None:
        """Nothing beyond a hold's row was allowed under a number that is not above the hold's own end."""
        memory, passed = operation.memory, {}
        for row in _audit(operation):
            if row.action == "upgrades.hold" and row.after.get("effect") == "done":
                step = Step.objects.get(operation=operation, index=row.after["step"])
                if not step.result.get("breached"):
                    passed[step.args["row"]] = row.fence
        holds = Step.objects.filter(operation=operation, name="upgrades.hold").exclude(args={})
        for row in sorted({step.args["row"] for step in holds}):
            most = dict(zip(memory["roles"], memory["rows"][row][1], strict=True))
            for written in self._held_by(operation):
                box = _box(written)
                beyond = [
                    k
                    for k, n in (box.ceilings if box else {}).items()
                    if k[1] == memory["new"] and n > most[k[2]]
                ]
                if beyond and int(written.body["data"]["fence"]) <= passed.get(row, 10**30):
                    self._say(f"{operation}: {beyond} was allowed past the hold at row {row}")

    def _held_by(self, operation: Operation) -> list[Written]:
        mine = f"U-{operation.pk}"
        return [w for w in self.parameters() if _box(w) and w.body["data"].get("operation") == mine]

    def _nothing_left(self, operation: Operation) -> None:
        if operation.lease_owner or operation.lease_until:
            self._say(f"{operation} has a lease after its end")
        if Step.objects.filter(operation=operation, state="pending").exists():
            self._say(f"{operation} has steps after its end")
        if OperationTarget.objects.filter(operation=operation, released=False).exists():
            self._say(f"{operation} keeps its target")
        open_still = ChangeRequest.objects.filter(
            subject_kind="operations.hold", subject_id=str(operation.pk), state="open"
        )
        if open_still.exists():
            self._say(f"{operation} left step requests open: {list(open_still.values_list('pk', 'step'))}")

    def _ends_where_it_should(self) -> None:
        last = self.operations[-1]
        serving = last.memory["new"] if last.state == "succeeded" else last.memory["old"]
        stands = {key: count for key, count in self._final_counts().items() if count}
        roles = self.of_set()[-1].body["spec"]["roles"]
        wanted = {("0", serving, role["name"]): role["spec"]["replicas"] for role in roles}
        if stands != wanted:
            self._say(f"{stands} stands instead of {wanted}")
        if self.parameters()[-1].body["metadata"]["labels"][HOLD_LABEL] != "released":
            self._say("the parameter still holds")

    def _final_counts(self) -> dict[Key, int]:
        counts: dict[Key, int] = {}
        for written in self.children():
            if written.event == "DELETED":
                counts.pop(_key(written), None)
            else:
                counts[_key(written)] = int(written.body["spec"]["replicas"])
        return counts


def resumed_after(operation: Operation, at: float) -> float | None:
    """Seconds from a loss to the next step that was committed; None where none was."""
    later = [
        row.at.timestamp()
        for row in _audit(operation)
        if row.actor_kind == "worker"
        and row.at.timestamp() > at
        and row.after.get("effect") in ("done", "finish")
    ]
    return min(later) - at if later else None


def chain_problems() -> list[str]:
    """What is wrong with the sealed record."""
    verdict = verify_chain()
    return [] if getattr(verdict, "intact", verdict) else [str(verdict)]


def _audit(operation: Operation) -> list[AuditEvent]:
    rows = AuditEvent.objects.filter(target_kind="operation", target_id=str(operation.pk)).order_by("id")
    return list(rows)


def _fence_of_done(operation: Operation, action: str) -> int | None:
    return next(
        (r.fence for r in _audit(operation) if r.action == action and r.after.get("effect") == "done"), None
    )


def _label(written: Written, name: str) -> str:
    return str(written.body["metadata"].get("labels", {}).get(LABEL + name, ""))


def _key(written: Written) -> Key:
    return (_label(written, "slice") or "0", _label(written, "revision"), _label(written, "role"))


def _number(written: Written) -> int:
    return int(written.body["metadata"].get("annotations", {}).get(FENCE_ANNOTATION, "0"))


def _box(written: Written) -> Box | None:
    holds = written.body["metadata"]["labels"].get(HOLD_LABEL) == "true"
    return box_from_data(written.body["data"]) if holds else None


def _allows(box: Box | None, key: Key, before: int, after: int) -> bool:
    if box is None:
        return True
    if after < before:
        return after >= box.floors.get(key, 0)
    return after <= box.ceilings.get(key, 0)


def _peak(role: Json) -> int:
    replicas = int(role["spec"]["replicas"])
    surge = str(role["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["maxSurge"])
    share = surge.removesuffix("%")
    return replicas + (int(share) if share == surge else math.ceil(replicas * int(share) / 100))


def _image(role: Json) -> str:
    return str(role["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"])
