"""The last two combinations of each set as ConfigMaps in Lockstep's namespace, for a rescue without the database.

They hold what a restore needs, contents of ConfigMaps and plain env values included: who may read ConfigMaps in that
namespace reads them. Contents of Secrets are in no combination.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controlplane.fleet.parameter import NAMESPACE as LOCKSTEP_NAMESPACE
from controlplane.kube.client import Kube
from controlplane.kube.errors import AlreadyExists
from controlplane.kube.resources import CONFIG_MAPS
from policy.recovery.copies import PLACES, BrokenCopy, join_copy, piece_name, read_index, split_copy

Json = dict[str, Any]
COMBINATION_LABEL = "lockstep.dev/combination"


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy: its index (number, state, revision, captured_at, digest), and the document or why it is broken."""

    index: Json
    document: Json
    problem: str = ""


def write_copy(kube: Kube, document: Json, *, number: int, about: Json) -> list[str]:
    """Write the pieces, the one with the index last; names of those that were written. What says so already stays."""
    named = document["set"]
    written = []
    pieces = split_copy(document, number=number, about=about)
    for position, data in reversed(list(enumerate(pieces))):
        name = piece_name(named["namespace"], named["name"], number, position)
        live = kube.find(CONFIG_MAPS, name, LOCKSTEP_NAMESPACE)
        if live is not None and (live.get("data") or {}) == data:
            continue
        if live is None:
            try:
                kube.create(CONFIG_MAPS, _body(name, data))
            except AlreadyExists:
                live = kube.get(CONFIG_MAPS, name, LOCKSTEP_NAMESPACE)
        if live is not None:
            kube.replace(CONFIG_MAPS, {**live, "data": data})
        written.append(name)
    return written


def read_copies(kube: Kube, namespace: str, name: str) -> list[Copy]:
    """Both copies of a set, newest first; a broken one says why."""
    found = []
    for place in range(PLACES):
        first = kube.find(CONFIG_MAPS, piece_name(namespace, name, place, 0), LOCKSTEP_NAMESPACE)
        if first is not None:
            found.append(_read(kube, namespace, name, place, first.get("data") or {}))
    return sorted(found, key=lambda copy: int(copy.index.get("number", 0)), reverse=True)


def list_sets(kube: Kube) -> list[tuple[str, str]]:
    """Namespace and name of every set that has a copy."""
    items = kube.list(CONFIG_MAPS, LOCKSTEP_NAMESPACE, label_selector=COMBINATION_LABEL).items
    names = {each["metadata"]["name"].removeprefix("combination-").rpartition("-")[0] for each in items}
    return sorted((namespace, name) for namespace, _, name in (one.partition(".") for one in names))


def _read(kube: Kube, namespace: str, name: str, place: int, first: Json) -> Copy:
    try:
        index = read_index(first)
        pieces = [first]
        for position in range(1, int(index["pieces"])):
            named = piece_name(namespace, name, place, position)
            found = kube.find(CONFIG_MAPS, named, LOCKSTEP_NAMESPACE)
            pieces.append((found or {}).get("data") or {})
        return Copy(index, join_copy(pieces))
    except BrokenCopy as broken:
        return Copy({"number": 0, "place": place}, {}, str(broken))


def _body(name: str, data: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": LOCKSTEP_NAMESPACE,
            "labels": {COMBINATION_LABEL: "true", "app.kubernetes.io/managed-by": "lockstep"},
        },
        "data": data,
    }
