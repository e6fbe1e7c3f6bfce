"""The shipped admission policies: are they in the cluster as shipped, and put back where they are gone."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings

from controlplane.kube.client import Kube
from controlplane.kube.errors import AlreadyExists, ObjectMissing
from controlplane.kube.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS

Json = dict[str, Any]
TARGET = (
    Path(__file__).resolve().parents[2] / "deploy" / "target"
)  # where a program without settings finds them
# What the API server (1.36) fills into a policy or binding that does not say it.
SERVER_DEFAULTS: Json = {
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "scope": "*",
    "failurePolicy": "Fail",
    "paramKind": None,
}


@functools.cache
def shipped_guards(folder: Path | None = None) -> tuple[Json, ...]:
    """The policies and bindings of deploy/target, policies first; without a folder, of that of the settings."""
    folder = folder or settings.LOCKSTEP_TARGET_MANIFESTS
    found: list[Json] = []
    for name in ("rollout-hold.yaml", "hold-guard.yaml"):
        found.extend(d for d in yaml.safe_load_all((folder / name).read_text(encoding="utf-8")) if d)
    return tuple(sorted(found, key=lambda document: str(document["kind"]), reverse=False))


def guard_problems(kube: Kube, shipped: Sequence[Json] | None = None) -> list[str]:
    """Sentences for every shipped guard that is missing or differs from the shipped text. Reads only.

    `shipped` are those that somebody without settings has read (`shipped_guards`)."""
    return [problem for _, problem in _looked_at(kube, shipped)]


def restore_guards(kube: Kube, shipped: Sequence[Json] | None = None) -> list[str]:
    """Create what is missing, exactly as shipped, and say what was wrong. A changed guard is never overwritten:
    that is for a person, and stays a problem. `shipped` as in `guard_problems`."""
    problems = []
    for document, problem in _looked_at(kube, shipped):
        problems.append(problem)
        if problem.endswith("is missing"):
            try:
                kube.create(_resource(document), document)
            except AlreadyExists:
                continue
    return problems


def guards_sign(kube: Kube, shipped: Sequence[Json]) -> list[list[Any]]:
    """What changes when somebody edits, deletes or makes a guard: [kind and name, UID, generation] of each that stands.

    The times in managedFields do not do: taking a field away can take its entry, and with it the time, away as well.
    """
    sign = []
    for document in shipped:
        live = kube.find(_resource(document), document["metadata"]["name"])
        if live:
            name = f"{document['kind']} {document['metadata']['name']}"
            sign.append([name, live["metadata"]["uid"], live["metadata"].get("generation", 0)])
    return sign


def _looked_at(kube: Kube, shipped: Sequence[Json] | None) -> list[tuple[Json, str]]:
    found = []
    for document in shipped_guards() if shipped is None else shipped:
        name = f"{document['kind']} {document['metadata']['name']}"
        try:
            live = kube.get(_resource(document), document["metadata"]["name"])
        except ObjectMissing:
            found.append((document, f"{name} is missing"))
            continue
        if not _covers(live["spec"], document["spec"]):
            found.append((document, f"{name} differs from the shipped one"))
    return found


def _covers(live: Any, shipped: Any) -> bool:
    """True when the live value is the shipped one with the server's defaults, and nothing else: a selector or an
    excluded resource more would let writes pass that the shipped text refuses."""
    if isinstance(shipped, dict):
        return (
            isinstance(live, dict)
            and all(
                _covers(value, shipped[key]) if key in shipped else SERVER_DEFAULTS.get(key) == value
                for key, value in live.items()
            )
            and set(shipped) <= set(live)
        )
    if isinstance(shipped, list):
        return isinstance(live, list) and len(live) == len(shipped) and all(map(_covers, live, shipped))
    return bool(live == shipped)


def _resource(document: Json) -> Any:
    return (
        ADMISSION_POLICIES if document["kind"] == "ValidatingAdmissionPolicy" else ADMISSION_POLICY_BINDINGS
    )
