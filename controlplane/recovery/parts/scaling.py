"""Settings of scalers, last: written where they differ from the recorded ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.holds.scalers.seen import RESOURCES, list_scalers, name_of
from controlplane.operations.contract import Done, Outcome
from controlplane.recovery.parts.task import Task
from policy.rollout.scalers import difference

Json = dict[str, Any]


def put_scalers(task: Task, *, names: list[str]) -> Outcome:
    """A merge patch of what differs, under the UID and resourceVersion just read. A scaler that does not exist is
    said, not made: it may belong to another program."""
    stands = {name_of(body): body for body in list_scalers(task.kube, task.namespace).bodies}
    written, gone = [], []
    for wanted in task.document["scalers"]:
        name = f"{wanted['kind']} {wanted['name']}"
        if name not in names:
            continue
        if (body := stands.get(name)) is None:
            gone.append(name)
        elif patch := _patch(body, wanted["settings"]):
            metadata = body["metadata"]
            task.kube.patch(
                RESOURCES[body["kind"]],
                metadata["name"],
                metadata["namespace"],
                {**patch, "metadata": {**patch.get("metadata", {}), "uid": metadata["uid"]}},
                resource_version=metadata["resourceVersion"],
            )
            written.append(name)
    return Done(result={"written": written, "do_not_exist": gone})


def _patch(body: Mapping[str, Any], settings: Mapping[str, Any]) -> Json:
    """What to merge in so that the scaler says what was recorded; {} where it does."""
    patch: Json = {}
    _, spec = difference(body.get("spec") or {}, settings.get("spec") or {})
    if spec:
        patch["spec"] = spec
    annotations = body["metadata"].get("annotations") or {}
    changed = {k: v for k, v in (settings.get("annotations") or {}).items() if annotations.get(k) != v}
    if changed:
        patch["metadata"] = {"annotations": changed}
    return patch
