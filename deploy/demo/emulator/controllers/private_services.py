"""The ``-prv`` Services of a set: one headless Service for each role of the revision that is ready on all roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deploy.demo.emulator.controllers.children import Generation
from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import (
    ONLY_SLICE,
    SERVICES,
    SET_NAME,
    SET_REVISION,
    SET_ROLE,
    SET_SLICE,
    labels_of,
    owner_reference,
    where,
)
from deploy.demo.emulator.problems import ApiProblem

Doc = dict[str, Any]


async def reconcile_services(
    hands: Hands,
    owner: Doc,
    found: dict[str, Generation],
    *,
    roles: Sequence[str],
    revision: str,
    slice_key: str,
) -> None:
    """Create those of the target revision once it has a ready group in every role, then delete those of revisions
    that have not. Before that, all stay as they are."""
    ready = {label for label, generation in found.items() if _serves(generation, roles)}
    if revision not in ready:
        return
    for role in roles:
        await _create(
            hands, owner, found[revision][role].name, found[revision][role].sliced, slice_key, role, revision
        )
    for service in services_of(hands, owner, slice_key):
        if labels_of(service).get(SET_REVISION) not in ready:
            await hands.delete(SERVICES, *where(service))


def services_of(hands: Hands, owner: Doc, slice_key: str) -> list[Doc]:
    """The Services of one slice of a set."""
    namespace, name = where(owner)
    found = hands.list(SERVICES, namespace, labels=f"{SET_NAME}={name}")
    return [each for each in found if labels_of(each).get(SET_SLICE, ONLY_SLICE) == slice_key]


def _serves(generation: Generation, roles: Sequence[str]) -> bool:
    return all(role in generation and generation[role].ready >= 1 for role in roles)


async def _create(
    hands: Hands, owner: Doc, child: str, sliced: bool, slice_key: str, role: str, revision: str
) -> None:
    namespace, set_name = where(owner)
    name = f"{child}-prv"
    if hands.find(SERVICES, namespace, name) is not None:
        return
    labels = {SET_NAME: set_name, SET_ROLE: role, SET_REVISION: revision}
    if sliced:
        labels[SET_SLICE] = slice_key
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(owner, blocks=False)],
    }
    spec = {"clusterIP": "None", "selector": labels}
    try:
        await hands.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    except ApiProblem as problem:
        if problem.reason != "AlreadyExists":
            raise
