"""Roles that are scaled from outside (newer managers): one DisaggregatedSetRoleScaler for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.demo.emulator.controllers.children import Child
from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import (
    SCALERS,
    SET_NAME,
    SET_ROLE,
    WORKER_INDEX,
    condition,
    labels_of,
    owned_by,
    owner_reference,
    where,
)

Doc = dict[str, Any]


def external_roles(owner: Doc) -> frozenset[str]:
    """Names of the roles that are scaled from outside."""
    return frozenset(
        role["name"]
        for role in owner["spec"]["roles"]
        if (role.get("scaling") or {}).get("mode") == "External"
    )


def targets(owner: Doc, sized_by: Mapping[str, Doc]) -> dict[str, int]:
    """Groups per slice that each role is to have; none for a role whose scaler is missing."""
    external = external_roles(owner)
    found = {
        role["name"]: int(role["spec"].get("replicas", 1))
        for role in owner["spec"]["roles"]
        if role["name"] not in external
    }
    for role, scaler in sized_by.items():
        found[role] = int(scaler["spec"].get("replicas", 0))
    return found


async def reconcile_scalers(hands: Hands, owner: Doc, children: Sequence[Child]) -> dict[str, Doc]:
    """Create what is missing (with what the role has now), delete what is not needed; the scalers by role."""
    namespace, set_name = where(owner)
    wanted = external_roles(owner)
    found: dict[str, Doc] = {}
    for doc in hands.list(SCALERS, namespace, labels=f"{SET_NAME}={set_name}"):
        role = labels_of(doc).get(SET_ROLE, "")
        if role not in wanted and owned_by(doc, "DisaggregatedSet") == where(owner):
            await hands.delete(SCALERS, *where(doc))
            await hands.event(owner, "ScalerDeleted", f"{doc['metadata']['name']} is not needed any more")
    for role in sorted(wanted):
        name = f"{set_name}-{role}"
        there = hands.find(SCALERS, namespace, name)
        if there is None:
            have = [child.replicas for child in children if child.role == role]
            there = await _create(hands, owner, role, sum(have) if have else 1)
        elif owned_by(there, "DisaggregatedSet") != where(owner):
            message = f"{name} belongs to somebody else, so nothing scales {role}"
            await hands.event(owner, "ScalerConflict", message, warning=True)
            continue
        found[role] = there
    return found


async def _create(hands: Hands, owner: Doc, role: str, replicas: int) -> Doc:
    namespace, set_name = where(owner)
    metadata = {
        "name": f"{set_name}-{role}",
        "namespace": namespace,
        "labels": {SET_NAME: set_name, SET_ROLE: role},
        "ownerReferences": [owner_reference(owner, blocks=True)],
    }
    made = await hands.create(
        {
            "apiVersion": "disaggregatedset.x-k8s.io/v1",
            "kind": "DisaggregatedSetRoleScaler",
            "metadata": metadata,
            "spec": {"replicas": replicas},
        }
    )
    await hands.event(owner, "ScalerCreated", f"{metadata['name']} scales {role}")
    return made


async def write_status(
    hands: Hands, owner: Doc, sized_by: Mapping[str, Doc], children: Sequence[Child]
) -> None:
    """Groups over all revisions, how to find their leaders, and that the scaler is bound."""
    for role, scaler in sized_by.items():
        groups = sum(
            (child.doc.get("status") or {}).get("replicas", 0) for child in children if child.role == role
        )
        was = condition(scaler, "Ready")
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Bound",
            "message": "",
            "lastTransitionTime": was.get("lastTransitionTime") or hands.now,
        }
        selector = f"{SET_NAME}={where(owner)[1]},{SET_ROLE}={role},{WORKER_INDEX}=0"
        status = {"replicas": groups, "selector": selector, "conditions": [ready]}
        await hands.write_status(SCALERS, *where(scaler), status)
