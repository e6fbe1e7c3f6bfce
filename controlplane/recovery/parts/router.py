"""The router part: image and configuration of the Deployment behind a pool, as a new pod template.

The configuration goes into a new immutable ConfigMap that is named by its content, so that the one that stands now
stays as the way back (router-policy 4.5).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from controlplane.kube.errors import AlreadyExists
from controlplane.kube.resources import CONFIG_MAPS, DEPLOYMENTS
from controlplane.operations.contract import Done, Hold, Outcome, Wait
from controlplane.paths.router import read_flags
from controlplane.paths.view import PoolView
from controlplane.recovery.parts.task import Task
from controlplane.recovery.reading import Seen

Json = dict[str, Any]
POLICY_HASH = "lockstep.dev/policy-hash"
LOOK_EVERY = 2.0


def unwritable(recorded: Mapping[str, Any], pool: PoolView | None) -> str:
    """Why the router of a pool cannot be put back by a pod template; "" where it can."""
    if pool is None:
        return "the pool does not exist"
    then, now = recorded["router"]["config"], pool.router.config
    if pool.router.owner is None:
        return "no Deployment makes its router"
    if then["kind"] == "unknown" or then["kind"] in ("config-map", "inline") and not then["text"]:
        return "its configuration was not read when it was recorded"
    if then["kind"] != now.kind:
        return f"its configuration comes from {now.kind} now, and came from {then['kind']}"
    return ""


def put_router(task: Task, *, pools: list[str]) -> Outcome:
    """Patch each Deployment whose template differs; done when all say what was recorded, rolled out or not."""
    seen, written = task.see(), []
    for name in pools:
        found = _both(task, seen, name)
        if isinstance(found, Hold):
            return found
        recorded, pool, live = found
        template = live["spec"]["template"]
        wanted = _template(task, recorded["router"], pool, template)
        if isinstance(wanted, Hold):
            return wanted
        if wanted == template:
            continue
        metadata = live["metadata"]
        change: Json = {
            "metadata": {"uid": metadata["uid"]},
            "spec": {
                "template": {
                    "metadata": {"annotations": wanted["metadata"].get("annotations") or {}},
                    "spec": {
                        key: wanted["spec"][key] for key in ("containers", "volumes") if key in wanted["spec"]
                    },
                }
            },
        }
        task.kube.patch(
            DEPLOYMENTS,
            metadata["name"],
            task.namespace,
            change,
            resource_version=metadata["resourceVersion"],
        )
        written.append(metadata["name"])
    return Done(result={"written": written})


def reach_router(task: Task, *, pools: list[str]) -> Outcome:
    """Every router runs the recorded image and configuration, whole and ready, and nothing of the former one."""
    seen, waiting = task.see(), []
    for name in pools:
        found = _both(task, seen, name)
        if isinstance(found, Hold):
            return found
        recorded, pool, live = found
        if not _says(recorded["router"], pool):
            return Hold(
                code="router-changed",
                sentence=f"The router of {name} was given another image or configuration meanwhile.",
                next_action="Stop that writer, put the recorded one back, then retry; or abort.",
            )
        if said := _not_rolled_out(live, pool):
            waiting.append(f"{name}: {said}")
    if waiting and task.waited >= task.stuck_after:
        return Hold(
            code="router-not-ready",
            sentence=f"The router is not rolled out after {task.waited:.0f} s: {'; '.join(waiting)}.",
            next_action="Look at its pods, then retry; or abort.",
        )
    return Wait(LOOK_EVERY, f"routers: {'; '.join(waiting)}") if waiting else Done(result={"routers": pools})


def _both(task: Task, seen: Seen, name: str) -> tuple[Json, PoolView, Json] | Hold:
    """A pool as recorded and as it stands, and the Deployment of its router; a finding where that cannot be written."""
    recorded = next(each for each in task.document["pools"] if each["name"] == name)
    pools = [pool for path in seen.paths for pool in path.pools if pool.name == name]
    pool = pools[0] if pools else None
    if why := unwritable(recorded, pool):
        return Hold(
            code="router-not-writable",
            sentence=f"The router of {name} cannot be put back: {why}.",
            next_action="Put it back by hand, then retry; or abort.",
        )
    assert pool is not None and pool.router.owner is not None
    uid = pool.router.owner[2]
    return recorded, pool, next(each for each in seen.objects.deployments if each["metadata"]["uid"] == uid)


def _says(recorded: Json, pool: PoolView) -> bool:
    return (pool.router.image, pool.router.config.text) == (recorded["image"], recorded["config"]["text"])


def _not_rolled_out(live: Mapping[str, Any], pool: PoolView) -> str:
    wanted, status = int(live["spec"].get("replicas", 1)), live.get("status") or {}
    if int(status.get("observedGeneration", 0)) < live["metadata"].get("generation", 0):
        return "its controller has not seen it"
    counts = {key: int(status.get(key, 0)) for key in ("replicas", "updatedReplicas", "readyReplicas")}
    if set(counts.values()) - {wanted}:
        return f"{counts['updatedReplicas']} of {wanted} pods are new, {counts['readyReplicas']} ready"
    if not pool.router.config.sure and pool.router.config.kind != "built-in":
        return "its pods started before the configuration was written"
    return "" if pool.router.ready >= wanted else f"{pool.router.ready} of {wanted} pods ready"


def _template(task: Task, recorded: Json, pool: PoolView, template: Json) -> Json | Hold:
    """The live template with the recorded image and configuration."""
    wanted = deepcopy(template)
    container = next(c for c in wanted["spec"]["containers"] if c["name"] == pool.router.container)
    container["image"] = recorded["image"]
    config = recorded["config"]
    if config["text"] == pool.router.config.text or config["kind"] == "built-in":
        return wanted
    if config["kind"] == "inline":
        container["args"] = _with_text(container.get("args") or [], config["text"])
    elif finding := _point_at(task, wanted["spec"], container, pool, config["text"]):
        return finding
    annotations = wanted.setdefault("metadata", {}).setdefault("annotations", {}) or {}
    wanted["metadata"]["annotations"] = {**annotations, POLICY_HASH: _hash(config["text"])}
    return wanted


def _with_text(args: list[str], text: str) -> list[str]:
    found, following = [], False
    for word in args:
        if following:
            found.append(text)
            following = False
        elif word.lstrip("-").startswith("config-text="):
            found.append(f"--config-text={text}")
        else:
            found.append(word)
            following = word.startswith("-") and word.lstrip("-") == "config-text"
    return found


def _point_at(task: Task, spec: Json, container: Json, pool: PoolView, text: str) -> Hold | None:
    """Have the volume that the configuration file comes from name a ConfigMap with this text under the same key."""
    assert pool.router.owner is not None
    path = read_flags(container.get("args") or []).get("config-file", "")
    mount = next(
        m
        for m in container.get("volumeMounts") or ()
        if path == (at := str(m["mountPath"]).rstrip("/")) or path.startswith(at + "/")
    )
    volume = next(v for v in spec["volumes"] if v["name"] == mount["name"])
    named = f"{pool.router.owner[1]}-{_hash(text)[:8]}"
    key = pool.router.config.key
    body: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": named, "namespace": task.namespace},
        "immutable": True,
        "data": {key: text},
    }
    stands = task.kube.find(CONFIG_MAPS, named, task.namespace)
    if stands is None:
        try:
            stands = task.kube.create(CONFIG_MAPS, body)
        except AlreadyExists:
            stands = task.kube.get(CONFIG_MAPS, named, task.namespace)
    if (stands.get("data") or {}).get(key) != text:
        return Hold(
            code="config-map-taken",
            sentence=f"The ConfigMap {task.namespace}/{named} is there with another content than its name says.",
            next_action="Find out who made it and delete it, then retry; or abort.",
        )
    volume["configMap"] = {**volume["configMap"], "name": named}
    return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
