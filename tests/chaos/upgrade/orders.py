"""What is to be done to workers, generated over the steps of an upgrade and of its way back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

KILL, STOP = "kill", "stop"
BEFORE, AFTER, COMMIT = "before-call", "after-call", "before-commit"
# A step that fails five times in a row is held for a person; losing its worker counts as one.
PER_STEP = 3

# step → real writes that one claim of it makes: two to fence (the parameter, then the set), then its own.
FORWARD: Mapping[str, int] = {
    "open_hold": 3,
    "prove_hold": 0,
    "recovery.capture": 0,
    "recovery.publish_copies": 3,
    "write_roles": 3,
    "read_revision": 0,
    "raise_row": 4,
    "reach_row": 0,
    "publish_services": 4,
    "prove_path": 0,
    "hold": 0,
    "verify": 0,
    "record": 0,
    "release": 3,
    "finish": 0,
}
BACK: Mapping[str, int] = {
    "plan_abort": 0,
    "open_way_back": 2,  # at a hold the way back begins in the box that stands
    "write_back": 3,
    "reach_back": 0,
    "release": 3,
    "prove_path": 0,
    "finish": 0,
}
# What a stop, a torn hold and the fast profile add.
FREEZE: Mapping[str, int] = {"freeze": 3}
REPAIR: Mapping[str, int] = {"repair_hold": 3}
SETTLE: Mapping[str, int] = {"settle_roles": 3}
# What others cause: a start that is not whole, a revision left behind, counts that nobody planned.
CURE_STEP: Mapping[str, int] = {"cure_partial_init": 3}
LEAK_STEP: Mapping[str, int] = {"scale_leaked": 3}
ADOPT_STEP: Mapping[str, int] = {"adopt": 3}
# Steps that never speak to the cluster: their calls are the fencing after a loss alone.
SILENT = {"record", "finish"}


@dataclass(frozen=True, slots=True)
class Order:
    """One loss of a worker: where, at which call (empty: the first), and whether it is killed or paused."""

    point: str
    step: str
    call: str = ""
    action: str = KILL

    @property
    def file(self) -> str:
        """Name of the order's file, without the subject; a step of another room says which (`holds.…`)."""
        return f"{self.point}.{self.step if '.' in self.step else f'upgrades.{self.step}'}"

    @property
    def line(self) -> str:
        """What it says."""
        return f"{self.action} {self.call}".strip()


def selection(steps: Mapping[str, int], *, action: str = KILL) -> list[Order]:
    """The three points of every step, calls being its own write, or its first look."""
    orders = []
    for step, writes in steps.items():
        call = f"write {writes}" if writes else ""
        orders += [Order(COMMIT, step, "", action)] if step in SILENT else []
        orders += [Order(BEFORE, step, call, action), Order(AFTER, step, call, action)]
        orders += [] if step in SILENT else [Order(COMMIT, step, "", action)]
    return orders


def everything(steps: Mapping[str, int], *, action: str = KILL) -> list[Order]:
    """Every write of every step by number, before and after it, besides the first look and the commit."""
    orders = selection(steps, action=action)
    for step, writes in steps.items():
        for point in (BEFORE, AFTER):
            orders += [Order(point, step, f"write {number}", action) for number in range(1, writes)]
        if writes:
            orders += [Order(BEFORE, step, "get", action), Order(AFTER, step, "get", action)]
    return orders


def deal(orders: Iterable[Order], hands: int) -> list[list[Order]]:
    """The orders spread over so many upgrades, for each step evenly and no more than PER_STEP to one. Those of a
    silent step stay together: without a loss at its commit it makes no call to be lost at.

    Raises ValueError where that takes more hands."""
    dealt: list[list[Order]] = [[] for _ in range(hands)]
    for order in orders:
        hand = min(dealt, key=lambda hand: (_fullness(hand, order.step), len(hand)))
        if sum(one.step == order.step for one in hand) >= PER_STEP:
            raise ValueError(f"{order.step} needs more than {hands} upgrades")
        hand.append(order)
    return dealt


def _fullness(hand: list[Order], step: str) -> int:
    there = sum(one.step == step for one in hand)
    return -there if step in SILENT else there


def lay_out(folder: Path, orders: Iterable[Order], *, subject: str) -> None:
    """Write the files for the operation on this subject."""
    files: dict[str, list[str]] = {}
    for order in orders:
        files.setdefault(order.file, []).append(order.line)
    for name, lines in files.items():
        (folder / f"{name}@{subject}").write_text("\n".join(lines) + "\n")


@dataclass(frozen=True, slots=True)
class Taken:
    """An order that a process has come to: what it said, which process, when (seconds since the epoch)."""

    name: str
    subject: str
    line: str
    process: int
    at: float


def taken(folder: Path, *, subject: str) -> list[Taken]:
    """Orders taken so far, oldest first."""
    found = []
    for path in folder.glob(f"*@{subject}.taken.*"):
        name, _, rest = path.name.partition("@")
        process, _, at = rest.split(".taken.")[1].partition(".")
        line = path.read_text().partition("\n")[0]
        found.append(Taken(name, subject, line, int(process), float(at)))
    return sorted(found, key=lambda one: one.at)


def left(folder: Path, *, subject: str) -> list[str]:
    """Orders that nobody came to."""
    return sorted(
        f"{path.name}: {path.read_text().strip()!r}"
        for path in folder.glob(f"*@{subject}")
        if not path.name.startswith(".")
    )
