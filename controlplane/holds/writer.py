"""Who writes to a set and its hold parameter: for which operation, of which installation, under which number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.holds.live import LiveSet, read_live
from controlplane.holds.parameter import (
    belongs_to,
    holding_parameter,
    is_holding,
    owner_of,
    same_box,
    standing_box,
)
from controlplane.kube.client import Kube
from controlplane.kube.errors import ObjectMissing
from controlplane.operations.contract import Hold
from policy.rollout.box import Box

Json = dict[str, Any]


def foreign_hold(parameter: Mapping[str, Any]) -> Hold:
    """The finding that a set is held for somebody else."""
    return Hold(
        code="foreign-hold",
        sentence=f"The set is already held, for {owner_of(parameter)}: a hold without an operation of ours"
        " is for a person.",
        next_action="Find out what it waits for, have break-glass release it, then retry; or abort.",
    )


class SetLost(Exception):
    """The set that was meant is not there any more: deleted, or another one has its name."""

    def __init__(self, finding: Hold) -> None:
        super().__init__(finding.sentence)
        self.finding = finding


@dataclass(frozen=True, slots=True)
class SetWriter:
    """One writer. `uid` is the identity of the set that was meant; `operation` its name in the cluster."""

    kube: Kube
    namespace: str
    name: str
    uid: str
    operation: str
    installation: str
    fence: int

    def look(self) -> LiveSet:
        """Set, children and parameter, read live. Raises SetLost, and KubeError as usual."""
        try:
            live = read_live(self.kube, self.namespace, self.name)
        except ObjectMissing as error:
            if error.api_missing:
                raise
            raise SetLost(self._gone()) from error
        if live.body["metadata"]["uid"] != self.uid:
            raise SetLost(self._replaced(live))
        return live

    def is_ours(self, parameter: Mapping[str, Any]) -> bool:
        """Whether a parameter was written for this operation, and not for one of the same number elsewhere."""
        return belongs_to(parameter, operation=self.operation, installation=self.installation)

    def wrong_parameter(self, parameter: Json | None, boxes: Sequence[Box]) -> list[str]:
        """What is wrong with the parameter that should hold one of these boxes for this operation. Empty = nothing."""
        if parameter is None:
            return ["the parameter is gone"]
        if not is_holding(parameter):
            return ["the parameter no longer holds"]
        data = parameter.get("data") or {}
        if not self.is_ours(parameter):
            return [f"the parameter belongs to {owner_of(parameter)}"]
        if (data.get("namespace"), data.get("set")) != (self.namespace, self.name):
            return [f"the parameter names another set: {data.get('namespace')}/{data.get('set')}"]
        try:
            standing = standing_box(parameter)
        except ValueError:
            return ["the parameter's floors and ceilings cannot be read"]
        if not any(same_box(standing, box) for box in boxes):
            return ["the parameter's floors and ceilings are not the ones Lockstep wrote"]
        return []

    def held(self, parameter: Json, box: Box, *, old_roles: Sequence[Mapping[str, Any]]) -> Json:
        """The parameter holding `box` for this operation, whatever it says now."""
        named = {"namespace": self.namespace, "set": self.name, "uid": self.uid}
        return holding_parameter(
            {**parameter, "data": named},
            operation=self.operation,
            installation=self.installation,
            fence=self.fence,
            box=box,
            old_roles=old_roles,
        )

    def _gone(self) -> Hold:
        return Hold(
            code="set-gone",
            sentence=f"{self.namespace}/{self.name} no longer exists.",
            next_action="Abort: nothing of the set that was meant is left.",
            facts={"expected_uid": self.uid},
        )

    def _replaced(self, live: LiveSet) -> Hold:
        return Hold(
            code="set-replaced",
            sentence=f"{self.namespace}/{self.name} was deleted and created again: it has another UID.",
            next_action="Abort: nothing of the set that was meant is left.",
            facts={"expected_uid": self.uid, "seen_uid": live.body["metadata"]["uid"]},
        )
