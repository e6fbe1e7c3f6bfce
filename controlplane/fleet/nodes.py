"""What is seen of a node: whether it takes pods, and what it offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. `devices` are allocatable extended resources (nvidia.com/gpu, …) by name."""

    name: str
    ready: bool
    cordoned: bool
    devices: Mapping[str, int]

    @property
    def trouble(self) -> str:
        """Why the node takes no new pods, or an empty string."""
        if not self.ready:
            return "not ready"
        return "cordoned" if self.cordoned else ""


def derive_node(node: Mapping[str, Any]) -> NodeView:
    """One node from its object."""
    status = node.get("status") or {}
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    allocatable = status.get("allocatable") or {}
    return NodeView(
        name=node["metadata"]["name"],
        ready=conditions.get("Ready") == "True",
        cordoned=bool((node.get("spec") or {}).get("unschedulable")),
        devices={
            name: int(text) for name, text in allocatable.items() if "/" in name and str(text).isdigit()
        },
    )
