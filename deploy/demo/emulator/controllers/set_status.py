"""The status that newer managers write on a DisaggregatedSet: counts per role and two conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.demo.emulator.controllers.children import Child
from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import SETS, condition, where

Doc = dict[str, Any]


async def write(
    hands: Hands, owner: Doc, children: Sequence[Child], revision: str, wanted: Mapping[str, int]
) -> None:
    """Counts over all slices and revisions; Available when every role is exactly what is wanted."""
    rows = [_row(role["name"], children, revision) for role in owner["spec"]["roles"]]
    slices = owner["spec"].get("slices", 1)
    settled = all(
        row["name"] in wanted
        and row["replicas"] == row["readyReplicas"] == row["updatedReplicas"] == wanted[row["name"]] * slices
        for row in rows
    )
    generation = owner["metadata"]["generation"]
    status = {
        "observedGeneration": generation,
        "roleStatuses": rows,
        "conditions": _conditions(owner, settled, generation, hands.now),
    }
    await hands.write_status(SETS, *where(owner), status)


def _row(role: str, children: Sequence[Child], revision: str) -> Doc:
    own = [child for child in children if child.role == role]
    return {
        "name": role,
        "replicas": _sum(own, "replicas"),
        "readyReplicas": _sum(own, "readyReplicas"),
        "updatedReplicas": _sum([child for child in own if child.revision == revision], "updatedReplicas"),
    }


def _sum(children: Sequence[Child], field: str) -> int:
    return sum((child.doc.get("status") or {}).get(field, 0) for child in children)


def _conditions(owner: Doc, settled: bool, generation: int, now: str) -> list[Doc]:
    """One of the two is True; the other, once it has been there, is False with the same reason."""
    true, false = ("Available", "Progressing") if settled else ("Progressing", "Available")
    reason = "AllRolesReady" if settled else "RolloutInProgress"
    made = []
    for kind in ("Available", "Progressing"):
        was = condition(owner, kind)
        if kind == false and not was:
            continue
        state = "True" if kind == true else "False"
        made.append(
            {
                "type": kind,
                "status": state,
                "reason": reason,
                "message": "Every role is ready" if settled else "A role is not as wanted yet",
                "observedGeneration": generation,
                "lastTransitionTime": was["lastTransitionTime"] if was.get("status") == state else now,
            }
        )
    return made
