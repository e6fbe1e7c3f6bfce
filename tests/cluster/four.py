"""Upgrades of a set of 4 prefill and 2 decode groups, brought to a row, and what must be true after the way back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from controlplane.approvals.models import ChangeRequest
from controlplane.fleet.models import Cluster
from controlplane.operations.clock import database_now
from controlplane.operations.models import Operation
from controlplane.upgrades.models import UpdateRecord
from deploy.rig import until, workloads
from policy.rollout.planner import START as START_ROW
from policy.rollout.planner import Row, next_row
from tests.cluster.driving import Lockstep
from tests.cluster.midway import HOLD, V2, Counts, Json, Midway
from tests.cluster.watcher import Seen

# old prefill, old decode / new prefill, new decode, as the published planner walks it with surge 1.
ROWS = ("42/00", "42/11", "32/11", "32/21", "21/21", "21/32", "11/32", "11/42", "00/42")
LAST = len(ROWS) - 1
START = {"prefill": 4, "decode": 2}


class Four(Midway):
    """A started upgrade of 4 prefill and 2 decode groups."""

    def before(self) -> Counts:
        """The counts of the old revision alone."""
        return {(self.old, role): count for role, count in START.items()}

    def first_row(self) -> Counts:
        """The counts at the first complete row."""
        return self.at_row(1)

    def at_row(self, row: int) -> Counts:
        """The counts at a row, empty sides left out."""
        old, new = ROWS[row].split("/")
        sides = [(self.old, old), (self.new, new)]
        return {
            (label, role): int(count)
            for label, counts in sides
            for role, count in zip(START, counts, strict=True)
            if count != "0"
        }

    def comes_to(self, step: str, *, row: int | None = None, limit_s: float = 60) -> None:
        """Turn until this step is the next one to be done (of this row), agreeing at every hold before it."""

        def next_is(now: Operation) -> bool:
            current = now.steps.filter(state="pending").order_by("index").first()
            assert current is not None and now.state != "held", self.lockstep.story()
            if current.name == f"upgrades.{step}" and current.args.get("row") == row:
                return True
            if now.state == "waiting":
                self.lockstep.let_go(now)
            return False

        self._turn_until(f"{step} of row {row}", next_is, limit_s)

    def stands_at(self, row: int) -> None:
        """Turn until the row stands: its look is done, and the next row is not allowed yet."""
        if row == LAST:
            self.comes_to("verify")
        else:
            self.comes_to("raise_row", row=row + 1)
        assert self.counts() == self.at_row(row), self.counts()

    def went_back(
        self, seen: Seen | None = None, *, row: int | None = None, outcome: str = "aborted"
    ) -> None:
        """The old revision whole and alone, the parameter let go, the record closed, and nothing ever out of bounds."""
        client = self.client("admin")
        assert workloads.wait_settled(client, self.namespace, "model") == self.old
        assert self.counts() == self.before(), self.counts()
        assert client.get(self.parameter_path)["metadata"]["labels"][HOLD] == "released"
        record = UpdateRecord.objects.get(operation=self.operation)
        assert (record.outcome, record.closed_at is not None) == (outcome, True)
        until("the new revision's Services to go", lambda: not self.services(self.new or "none"))
        if seen is not None:
            within_bounds(seen, peaks=peaks_back(*([row] if row is not None else range(len(ROWS)))))

    def services(self, revision: str) -> list[str]:
        """Names of a revision's private Services."""
        found = self.client("admin").items(
            f"/api/v1/namespaces/{self.namespace}/services",
            selector=f"{workloads.NAME_LABEL}=model,{workloads.REVISION_LABEL}={revision}",
        )
        return sorted(each["metadata"]["name"] for each in found)


def peaks_back(*rows: int) -> dict[str, int]:
    """The most groups of each role on the way back from any of these rows.

    Target + surge, and one more where the controller's planner forces a step: it makes the growth and the drain of
    one step one after the other (lws v0.9.0 executor), and on the way back its steps may change both sides.
    """
    found = {role: count + 1 for role, count in START.items()}
    for row in rows:
        old, new = (tuple(map(int, side)) for side in ROWS[row].split("/"))
        for leaving, coming in itertools.pairwise(_way_back(leaving=new, coming=old)):
            for role, left, grown in zip(START, leaving.old, coming.new, strict=True):
                found[role] = max(found[role], left + grown)
    return found


def _way_back(*, leaving: tuple[int, ...], coming: tuple[int, ...]) -> Iterator[Row]:
    """What the controller does after the old roles were written back: no rollout starts, so that it never notes
    what the leaving revision began with, and goes by what stands at each step."""
    target = tuple(START.values())
    row: Row | None = Row(leaving, coming, START_ROW)
    while row is not None:
        yield row
        row = next_row(
            initial=row.old, old=row.old, new=row.new, target=target, surge=(1, 1), unavailable=(0, 0)
        )


def within_bounds(seen: Seen, *, start: dict[str, int] | None = None, peaks: dict[str, int]) -> None:
    """Never more groups of a role than these, never fewer ready than the plan's minimum."""
    for role, count in (start or START).items():
        assert seen.total_peak(role) <= peaks[role], (role, seen.states)
        assert seen.least_ready(role, start=count) >= count, (role, seen.ready)


def four(lockstep: Lockstep, namespace: str, make_set: Callable[..., str], **options: Any) -> Four:
    """An approved upgrade of both roles that has been started and not been worked on."""
    old = make_set()
    operation = lockstep.upgrade(namespace, "model", image=options.pop("image", V2), **options)
    return Four(lockstep, namespace, operation, old)


def seen_now(lockstep: Lockstep) -> None:
    """What the watch does every second: the view of the cluster is current, so that a person may promote."""
    Cluster.objects.filter(pk=lockstep.cluster.pk).update(observed_at=database_now())


def remembered(upgrade: Midway, **values: Any) -> None:
    """Change what the operation remembers, for times that an option cannot make so short."""
    row = Operation.objects.get(pk=upgrade.operation.pk)
    row.memory = {**row.memory, **values}
    row.save(update_fields=["memory"])


def done(upgrade: Midway, step: str) -> list[Json]:
    """Arguments of every finished step of this name, in order."""
    found = upgrade.operation.steps.filter(name=f"upgrades.{step}", state="done").order_by("index")
    return list(found.values_list("args", flat=True))


def asked(upgrade: Midway) -> list[ChangeRequest]:
    """The step approvals of the operation, oldest first."""
    found = ChangeRequest.objects.filter(subject_kind="operations.hold", subject_id=str(upgrade.operation.pk))
    return list(found.order_by("id"))
