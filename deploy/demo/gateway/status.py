"""What the controller says on the objects: conditions of gateway class, gateway, routes and pools.

Only what differs is written, so that a status that nobody changed keeps its times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from deploy.demo.gateway.names import CONTROLLER, GATEWAY_GROUP, POOL_GROUP
from deploy.demo.gateway.routes import Attachment, Condition, Plan, is_ours
from deploy.demo.gateway.world import Key, Pool, World

Doc = dict[str, Any]

_ROUTE_KIND = {"group": GATEWAY_GROUP, "kind": "HTTPRoute"}
_RESOLVED = Condition("ResolvedRefs", True, "ResolvedRefs")


@dataclass(frozen=True)
class Write:
    """One status to write: the object's URL path, the resourceVersion it was read at, the status."""

    path: str
    version: str
    status: Doc


@dataclass(frozen=True)
class Served:
    """How far serving is: ``programmed`` as it stands, and the address that is served."""

    programmed: Condition
    address: str


def writes(world: World, plan: Plan, gateway: Key, served: Served, now: str) -> list[Write]:
    """The statuses that differ from what the objects say; ``now`` is the RFC 3339 time of a condition that turns."""
    found: list[Write | None] = []
    doc = world.gateways.get(gateway)
    if doc is not None and is_ours(world, doc):
        found.append(_class(world.classes[("", doc["spec"]["gatewayClassName"])], now))
        found.append(_gateway(doc, plan, served, now))
    for key, route in world.routes.items():
        found.append(_route(route, plan.attachments.get(key, ()), key, gateway, now))
    for key, pool in world.pools.items():
        found.append(_pool(pool, plan.pools.get(key), key, gateway, now))
    return [each for each in found if each is not None]


def _class(doc: Doc, now: str) -> Write | None:
    conditions = _conditions(doc, doc.get("status", {}), [Condition("Accepted", True, "Accepted")], now)
    return _write(doc, f"/apis/{GATEWAY_GROUP}/v1/gatewayclasses", {"conditions": conditions})


def _gateway(doc: Doc, plan: Plan, served: Served, now: str) -> Write | None:
    assert plan.accepted is not None
    programmed = served.programmed
    if not plan.accepted.status:
        programmed = Condition("Programmed", False, "Invalid", plan.accepted.message)
    status = doc.get("status", {})
    old = {each["name"]: each for each in status.get("listeners") or []}
    listeners = []
    for verdict in plan.listeners:
        state = Condition("Programmed", False, "Invalid", verdict.accepted.message)
        wanted = [verdict.accepted, programmed if verdict.accepted.status else state, _RESOLVED]
        listeners.append(
            {
                "name": verdict.name,
                "supportedKinds": [_ROUTE_KIND],
                "attachedRoutes": verdict.attached,
                "conditions": _conditions(doc, old.get(verdict.name, {}), wanted, now),
            }
        )
    new: Doc = {
        "addresses": [{"type": "IPAddress", "value": served.address}],
        "conditions": _conditions(doc, status, [plan.accepted, programmed], now),
        "listeners": listeners,
    }
    return _write(doc, f"/apis/{GATEWAY_GROUP}/v1/namespaces/{doc['metadata']['namespace']}/gateways", new)


def _route(doc: Doc, attachments: Iterable[Attachment], key: Key, gateway: Key, now: str) -> Write | None:
    old = doc.get("status", {}).get("parents") or []
    parents = [each for each in old if not _is_ours(each, key[0], gateway)]
    for attachment in attachments:
        before: Doc = next((each for each in old if each["parentRef"] == attachment.ref and _says(each)), {})
        wanted = [attachment.accepted, attachment.resolved]
        parents.append(_parent(doc, attachment.ref, before, wanted, now))
    return _write(doc, f"/apis/{GATEWAY_GROUP}/v1/namespaces/{key[0]}/httproutes", {"parents": parents})


def _pool(doc: Doc, pool: Pool | None, key: Key, gateway: Key, now: str) -> Write | None:
    old = doc.get("status", {}).get("parents") or []
    # A v1 pool starts with an entry that no controller wrote ("default" of kind "Status"); it goes when one does.
    parents = [each for each in old if not _is_ours(each, key[0], gateway)]
    if pool is not None:
        ref = {"group": GATEWAY_GROUP, "kind": "Gateway", "namespace": gateway[0], "name": gateway[1]}
        before: Doc = next((each for each in old if _is_ours(each, key[0], gateway)), {})
        parents = [each for each in parents if each["parentRef"].get("kind") != "Status"]
        parents.append(_parent(doc, ref, before, _pool_conditions(doc, pool), now))
    return _write(doc, f"/apis/{POOL_GROUP}/v1/namespaces/{key[0]}/inferencepools", {"parents": parents})


def _pool_conditions(doc: Doc, pool: Pool) -> list[Condition]:
    if not doc["spec"].get("endpointPickerRef"):
        accepted = Condition("Accepted", False, "EndpointPickerRefMissing", pool.missing)
    else:
        accepted = Condition("Accepted", True, "Accepted")
    if pool.missing:
        return [accepted, Condition("ResolvedRefs", False, "InvalidExtensionRef", pool.missing)]
    return [accepted, _RESOLVED]


# --- shared shapes


def _says(parent: Doc) -> bool:
    return parent.get("controllerName") == CONTROLLER


def _is_ours(parent: Doc, namespace: str, gateway: Key) -> bool:
    """Whether an entry of ``parents`` was written by us for this gateway: others' entries are left alone."""
    ref = parent.get("parentRef", {})
    return _says(parent) and (ref.get("namespace", namespace), ref.get("name")) == gateway


def _parent(doc: Doc, ref: Doc, before: Doc, wanted: Iterable[Condition], now: str) -> Doc:
    conditions = _conditions(doc, before, wanted, now)
    return {"parentRef": ref, "controllerName": CONTROLLER, "conditions": conditions}


def _conditions(doc: Doc, before: Doc, wanted: Iterable[Condition], now: str) -> list[Doc]:
    """Conditions as documents; the time stays where the status stays."""
    old = {each["type"]: each for each in before.get("conditions") or []}
    made = []
    for condition in wanted:
        state = "True" if condition.status else "False"
        last = old.get(condition.type, {})
        made.append(
            {
                "type": condition.type,
                "status": state,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": doc["metadata"].get("generation", 0),
                "lastTransitionTime": last["lastTransitionTime"] if last.get("status") == state else now,
            }
        )
    return made


def _write(doc: Doc, collection: str, status: Doc) -> Write | None:
    old = doc.get("status", {})
    if all(old.get(name, []) == value for name, value in status.items()):
        return None
    meta = doc["metadata"]
    return Write(f"{collection}/{meta['name']}", meta["resourceVersion"], status)
