"""Contents of ConfigMaps that the pods mount, and the objectives of the pools: put back as recorded."""

from __future__ import annotations

from typing import Any

from controlplane.kube.errors import AlreadyExists
from controlplane.kube.resources import CONFIG_MAPS, OBJECTIVES, OLDER_OBJECTIVES
from controlplane.operations.contract import Done, Hold, Outcome
from controlplane.recovery.parts.task import Task
from controlplane.recovery.reading import content_of

Json = dict[str, Any]


def put_config_maps(task: Task, *, names: list[str]) -> Outcome:
    """Write what differs, each under the resourceVersion and UID just read. Pods that run keep what they have read."""
    written: list[str] = []
    same: list[str] = []
    for name in names:
        wanted = task.document["config_maps"].get(name)
        if wanted is None:
            continue
        live = task.kube.find(CONFIG_MAPS, name, task.namespace)
        if live is not None and _says(live, wanted):
            same.append(name)
            continue
        if live is not None and live.get("immutable"):
            return Hold(
                code="config-map-immutable",
                sentence=f"The ConfigMap {task.namespace}/{name} differs from the recorded one and is immutable.",
                next_action="Delete it, then retry: it is made again with the recorded content; or abort.",
                facts={"written": written},
            )
        try:
            _write(task, name, wanted, live)
        except AlreadyExists:
            return put_config_maps(task, names=names)
        written.append(name)
    return Done(result={"written": written, "already_as_recorded": same})


def _says(live: Json, wanted: Json) -> bool:
    found = content_of(live)
    return bool((found["data"], found["binaryData"]) == (wanted["data"], wanted["binaryData"]))


def _write(task: Task, name: str, wanted: Json, live: Json | None) -> None:
    content = {key: wanted[key] for key in ("data", "binaryData") if wanted[key]}
    if live is not None:
        kept = {key: value for key, value in live.items() if key not in ("data", "binaryData")}
        task.kube.replace(CONFIG_MAPS, {**kept, **content})
        return
    body: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": task.namespace},
        **content,
        **({"immutable": True} if wanted["immutable"] else {}),
    }
    task.kube.create(CONFIG_MAPS, body)


def put_objectives(task: Task, *, names: list[str]) -> Outcome:
    """Objectives of the pools with the recorded spec; one that was added since is left alone."""
    stands = {each["metadata"]["name"]: each for each in task.see().objects.objectives}
    written = []
    for wanted in task.document["objectives"]:
        if wanted["name"] not in names:
            continue
        live = stands.get(wanted["name"])
        resource = next(
            (each for each in (OBJECTIVES, OLDER_OBJECTIVES) if each.api_version == wanted["api"]), OBJECTIVES
        )
        if live is None:
            body = {
                "apiVersion": wanted["api"],
                "kind": resource.kind,
                "metadata": {"name": wanted["name"], "namespace": task.namespace},
                "spec": wanted["spec"],
            }
            task.kube.create(resource, body)
        elif (live.get("spec") or {}) != wanted["spec"]:
            task.kube.replace(resource, {**live, "spec": wanted["spec"]})
        else:
            continue
        written.append(wanted["name"])
    return Done(result={"written": written})
