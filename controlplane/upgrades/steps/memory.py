"""The working memory of an upgrade: what start wrote down and what steps learned, typed over the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.holds.claimant import writer_of
from controlplane.holds.live import LiveSet, last_writer, roles_digest
from controlplane.holds.parameter import box_from_json, is_holding, standing_box
from controlplane.holds.writer import SetLost as SetLost
from controlplane.operations.contract import Hold, StepContext
from controlplane.upgrades.models import Plan
from policy.rollout.box import Box, abort_box, forward_box
from policy.rollout.planner import Row

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Memory:
    """Read-only view; steps change it only through `remember` of their outcome."""

    data: Mapping[str, Any]

    @property
    def namespace(self) -> str:
        """Namespace of the set."""
        return str(self.data["namespace"])

    @property
    def name(self) -> str:
        """Name of the set."""
        return str(self.data["name"])

    @property
    def uid(self) -> str:
        """UID of the set: the identity that was approved."""
        return str(self.data["uid"])

    @property
    def roles(self) -> list[str]:
        """Role vector: roles of the new spec in order, then removed ones."""
        return list(self.data["roles"])

    @property
    def rows(self) -> list[Row]:
        """The executor's rows, start row first."""
        return [Row(tuple(old), tuple(new), kind) for old, new, kind in self.data["rows"]]

    @property
    def old(self) -> str:
        """Label of the revision that was live at the start."""
        return str(self.data["old"])

    @property
    def new(self) -> str:
        """Label of the new revision; empty until the controller has made it."""
        return str(self.data.get("new", ""))

    @property
    def slices(self) -> list[str]:
        """Slice names in order."""
        return list(self.data["slices"])

    @property
    def slice_rows(self) -> dict[str, int]:
        """Row that each slice may reach now."""
        return dict(self.data["slice_rows"])

    @property
    def round(self) -> int:
        """How often the rows were planned anew (adopt): an approval of one round never passes a hold of another."""
        return int(self.data.get("round", 0))

    def counts_at(self, row: int) -> tuple[dict[str, int], dict[str, int]]:
        """Groups per role of the old and the new side at a row."""
        found = self.rows[row]
        return dict(zip(self.roles, found.old, strict=True)), dict(zip(self.roles, found.new, strict=True))

    def box(self, slice_rows: Mapping[str, int] | None = None) -> Box:
        """The box that must stand now; on the way back and while stopped it is the remembered one."""
        return box_from_json(self.data.get("box")) or forward_box(
            roles=self.roles,
            rows=self.rows,
            slice_rows=slice_rows or self.slice_rows,
            old=self.old,
            new=self.new,
        )

    def next_box(self, slices: Sequence[str], row: int) -> Box:
        """The box that lets these slices reach a row."""
        slice_rows = {**self.slice_rows, **dict.fromkeys(slices, row)}
        return Memory({**self.data, "box": None}).box(slice_rows)

    def way_back(self, live: LiveSet) -> Box:
        """The box of the way back from what stands now."""
        goal = {str(role): int(count) for role, count in self.data["goal_back"].items()}
        try:
            forward = standing_box(live.parameter) if is_holding(live.parameter) else Box()
        except ValueError:  # forged; what stands says enough
            forward = Box()
        return abort_box(forward=forward, counts=live.counts(), old=self.old, goal=goal)


def memory_of(context: StepContext) -> Memory:
    """Typed memory of the step's operation."""
    return Memory(context.operation.memory)


def look(context: StepContext) -> LiveSet:
    """Set, children and parameter, read live. Raises SetLost, and KubeError as usual."""
    return writer_of(context).look()


def is_ours(context: StepContext, parameter: Json) -> bool:
    """Whether a parameter was written for this operation, and not for one of the same number elsewhere."""
    return writer_of(context).is_ours(parameter)


def plan_of(context: StepContext) -> Plan:
    """The approved plan; its content never changes once an operation runs on it."""
    return Plan.objects.get(pk=context.operation.memory["plan"])


def foreign_write(context: StepContext, live: LiveSet) -> Hold | None:
    """A finding where the roles of the set are not the ones that this operation last saw or wrote."""
    memory = memory_of(context)
    if roles_digest(live.roles) == memory.data["expected"]:
        return None
    writer = last_writer(live.body)
    return Hold(
        code="foreign-write",
        sentence=f"Somebody else wrote spec.roles of {memory.namespace}/{memory.name}: last writer {writer}.",
        next_action="Stop that writer and put the approved roles back, then retry; or abort.",
        facts={"writer": writer, "generation": live.body["metadata"].get("generation")},
    )


def breach(context: StepContext, live: LiveSet, *, next_box: Box | None = None) -> list[str]:
    """What is wrong with the hold: the parameter, or counts outside its box. Empty = stands.

    `next_box` is the one that this step is about to write, or has written before it could remember it.
    """
    boxes = [memory_of(context).box(), *([next_box] if next_box else [])]
    return wrong_parameter(context, live.parameter, boxes) or boxes[-1].breaches(live.counts())


def wrong_parameter(context: StepContext, parameter: Json | None, boxes: Sequence[Box]) -> list[str]:
    """What is wrong with the parameter that should hold one of these boxes for this operation. Empty = nothing."""
    return writer_of(context).wrong_parameter(parameter, boxes)


def held_by_us(context: StepContext, parameter: Json, box: Box) -> Json:
    """The parameter holding `box` for this operation, whatever it says now."""
    return writer_of(context).held(parameter, box, old_roles=(plan_of(context).content or {})["roles_before"])
