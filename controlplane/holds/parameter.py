"""The hold parameter: one ConfigMap per set, in Lockstep's namespace, kept for good."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.fleet.parameter import HOLD_LABEL, STANDING, is_standing
from controlplane.fleet.parameter import NAMESPACE as LOCKSTEP_NAMESPACE
from controlplane.holds.live import parameter_name
from policy.rollout.box import Box, box_from_data

Json = dict[str, Any]

RELEASED = "released"
# What a released parameter still says.
_LASTING = ("namespace", "set", "uid", "operation", "installation")


def is_holding(parameter: Mapping[str, Any] | None) -> bool:
    """True while the admission policy reads the parameter."""
    return parameter is not None and is_standing(parameter)


def belongs_to(parameter: Mapping[str, Any], *, operation: str, installation: str) -> bool:
    """Whether a parameter was written for this operation of this installation."""
    data = parameter.get("data") or {}
    return (data.get("operation"), data.get("installation")) == (operation, installation)


def owner_of(parameter: Mapping[str, Any]) -> str:
    """For whom a parameter says that it holds, in words."""
    data = parameter.get("data") or {}
    return f"{data.get('operation', 'nobody')} of installation {data.get('installation', 'unknown')}"


def fence_of(parameter: Mapping[str, Any] | None) -> int:
    """The fence number that stands in the cluster for this set, 0 where there is none."""
    return int((parameter or {}).get("data", {}).get("fence", "0"))


def standing_box(parameter: Mapping[str, Any] | None) -> Box:
    """The box that the parameter describes, whether it is holding or released."""
    return box_from_data((parameter or {}).get("data", {}))


def same_box(one: Box, other: Box) -> bool:
    """Whether two boxes allow the same; a floor or ceiling of 0 is the same as none."""
    return all(
        {key: count for key, count in mine.items() if count} == {k: c for k, c in theirs.items() if c}
        for mine, theirs in ((one.floors, other.floors), (one.ceilings, other.ceilings))
    )


def box_as_json(box: Box) -> Json:
    """A box for the memory of an operation."""
    return {
        "floors": [[list(key), count] for key, count in sorted(box.floors.items())],
        "ceilings": [[list(key), count] for key, count in sorted(box.ceilings.items())],
    }


def box_from_json(kept: Mapping[str, Any] | None) -> Box | None:
    """The remembered box, None where none was written yet."""
    if not kept:
        return None
    floors, ceilings = (
        {(key[0], key[1], key[2]): int(count) for key, count in kept[side]} for side in ("floors", "ceilings")
    )
    return Box(floors, ceilings)


def released_parameter(*, namespace: str, name: str, uid: str, fence: int) -> Json:
    """A parameter that holds nothing: where a set is fenced for the first time."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": parameter_name(namespace, name),
            "namespace": LOCKSTEP_NAMESPACE,
            "labels": {HOLD_LABEL: RELEASED, "app.kubernetes.io/managed-by": "lockstep"},
        },
        "data": {"namespace": namespace, "set": name, "uid": uid, "fence": str(fence)},
    }


def with_fence(parameter: Json, fence: int) -> Json:
    """The same parameter under a higher number; its resourceVersion stays, so a race ends in a conflict."""
    return {**parameter, "data": {**(parameter.get("data") or {}), "fence": str(fence)}}


def holding_parameter(
    parameter: Json,
    *,
    operation: str,
    installation: str,
    fence: int,
    box: Box,
    old_roles: Sequence[Mapping[str, Any]],
) -> Json:
    """The parameter holding exactly `box` for `operation`, with what a person at a shell needs to go back."""
    data = parameter["data"]
    namespace, name = data["namespace"], data["set"]
    me = parameter["metadata"]["name"]
    read = f"kubectl -n {LOCKSTEP_NAMESPACE} get configmap {me} -o jsonpath='{{.data.old-roles}}'"
    return {
        **parameter,
        "metadata": {**parameter["metadata"], "labels": {**_labels(parameter), HOLD_LABEL: STANDING}},
        "data": {
            "namespace": namespace,
            "set": name,
            "uid": data["uid"],
            "operation": operation,
            "installation": installation,
            "fence": str(fence),
            "old-roles": json.dumps({"spec": {"roles": list(old_roles)}}, separators=(",", ":")),
            "to-abort": f'kubectl -n {namespace} patch disaggregatedset {name} --type=merge -p "$({read})"',
            "to-release": f"kubectl -n {LOCKSTEP_NAMESPACE} label configmap {me} {HOLD_LABEL}={RELEASED} --overwrite"
            " # as a member of lockstep:break-glass, after the abort",
            **box.as_data(),
        },
    }


def released(parameter: Json, *, fence: int) -> Json:
    """The parameter let go: label `released`, no floors or ceilings; it still names the operation it served."""
    kept = {k: v for k, v in parameter["data"].items() if k in _LASTING}
    return {
        **parameter,
        "metadata": {**parameter["metadata"], "labels": {**_labels(parameter), HOLD_LABEL: RELEASED}},
        "data": {**kept, "fence": str(fence)},
    }


def _labels(parameter: Mapping[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = parameter["metadata"].get("labels", {})
    return labels
