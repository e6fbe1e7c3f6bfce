"""A set with everything around it, read live into one document: what a combination holds, and what it is compared
with (policy/recovery/diff). No database: a rescue reads the same way.

Contents of ConfigMaps are in it; of Secrets only the names: they cannot be restored, and neither their content nor a
digest of it belongs anywhere but in the cluster.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.fleet.names import SET_NAME, SET_REVISION, labels_of
from controlplane.fleet.target import find_target, templates_digest
from controlplane.holds.images import images_by_role
from controlplane.holds.live import LiveSet, read_live
from controlplane.holds.scalers.mark import UnreadableMark, mark_of
from controlplane.holds.scalers.seen import Listed, Scaler, list_scalers, targets_of
from controlplane.kube.client import Kube
from controlplane.kube.errors import ObjectMissing
from controlplane.kube.resources import CONFIG_MAPS, PODS
from controlplane.paths.engines import engine_facts, engine_of
from controlplane.paths.objects import PathObjects, read_objects
from controlplane.paths.view import PathView, PoolView, derive_paths, pools_of_route
from policy.recovery.mentions import find_mentions
from policy.rollout.scalers import FIELDS, give_back, merged, settings_of
from policy.transfer.fingerprint import transfer_fingerprint

Json = dict[str, Any]
VERSION = 1


@dataclass(frozen=True, slots=True)
class Seen:
    """One look: the document, and what it was made of. `live` is None where there is no such set."""

    document: Json
    live: LiveSet | None
    paths: tuple[PathView, ...]
    objects: PathObjects
    pods: tuple[Json, ...]
    scalers: tuple[Scaler, ...]

    @property
    def pools(self) -> list[PoolView]:
        """Pools that select pods of the set."""
        name = self.document["set"]["name"]
        return [pool for path in self.paths for pool in path.pools if name in pool.sets]


def read_seen(kube: Kube, namespace: str, name: str, *, recorded: Json | None = None) -> Seen:
    """Read everything once. `recorded` is the document that this look will be compared with: its ConfigMaps, pools
    and routes are read as well, whatever the set mentions now. Raises KubeError where the cluster does not answer."""
    try:
        live: LiveSet | None = read_live(kube, namespace, name)
    except ObjectMissing as error:
        if error.api_missing:
            raise
        live = None
    pods = tuple(kube.list(PODS, namespace, label_selector=f"{SET_NAME}={name}").items)
    objects = read_objects(kube, namespace)
    paths = tuple(_paths(objects, name, recorded))
    listed = list_scalers(kube, namespace)
    scalers = listed.aimed_at(targets_of(live)) if live else ()
    workload = _workload(live, pods, recorded) if live else None
    document = {
        "version": VERSION,
        "set": {"namespace": namespace, "name": name, "uid": live.body["metadata"]["uid"] if live else ""},
        "workload": workload,
        **_contents(kube, namespace, live, recorded),
        "pools": [_pool(pool) for path in paths for pool in path.pools],
        "objectives": [_objective(each) for path in paths for pool in path.pools for each in pool.objectives],
        "routes": _routes(objects, paths, recorded),
        "scalers": [_scaler(each) for each in scalers] + _scalers_by_name(listed, scalers, recorded),
        "transfer": _transfer(live.roles, workload["images"]) if live and workload else {},
        "unread": sorted({*objects.unread, *listed.unread}),
    }
    return Seen(document, live, paths, objects, pods, scalers)


def _paths(objects: PathObjects, name: str, recorded: Json | None) -> Iterable[PathView]:
    """Paths whose pools select pods of the set. A set without pods has none: then those that were recorded count."""
    wanted = {pool["name"] for pool in (recorded or {}).get("pools", ())}
    return [
        path
        for path in derive_paths(objects)
        if any(name in pool.sets or pool.name in wanted for pool in path.pools)
    ]


def _workload(live: LiveSet, pods: Sequence[Json], recorded: Json | None) -> Json:
    spec = live.body["spec"]
    known = {recorded["workload"]["revision"]: recorded["workload"]["templates"]} if recorded else {}
    target = find_target(
        roles=live.roles,
        children=[child.body for child in live.children.values()],
        places_itself=bool(spec.get("placementPolicy")),
        recorded=known,
    )
    own = [pod for pod in pods if target.label and labels_of(pod).get(SET_REVISION) == target.label]
    return {
        "roles": live.roles,
        "slices": len(live.slices),
        "placement": spec.get("placementPolicy"),
        "templates": templates_digest(live.roles),
        "revision": target.label,
        "certain": target.certain,
        "revisions": sorted(live.live_labels()),
        "images": images_by_role(own),
    }


def _contents(kube: Kube, namespace: str, live: LiveSet | None, recorded: Json | None) -> Json:
    mentions = find_mentions(live.roles if live else [])
    names = {*mentions.config_maps, *(recorded or {}).get("config_maps", {})}
    return {
        "config_maps": {name: config_map_content(kube, namespace, name) for name in sorted(names)},
        "secrets": [
            {"name": name, "roles": list(roles), "restored": "cannot be restored"}
            for name, roles in mentions.secrets.items()
        ],
    }


def config_map_content(kube: Kube, namespace: str, name: str) -> Json | None:
    """What a ConfigMap says, None where there is none. Text that a database cannot hold goes under binaryData."""
    found = kube.find(CONFIG_MAPS, name, namespace)
    return None if found is None else content_of(found)


def content_of(config_map: Mapping[str, Any]) -> Json:
    """data, binaryData and immutable of a ConfigMap."""
    data, binary = dict(config_map.get("data") or {}), dict(config_map.get("binaryData") or {})
    for key in [key for key, text in data.items() if "\x00" in text]:
        binary[key] = base64.b64encode(data.pop(key).encode()).decode()
    return {"data": data, "binaryData": binary, "immutable": bool(config_map.get("immutable"))}


def _pool(pool: PoolView) -> Json:
    router = pool.router
    return {
        "name": pool.name,
        "namespace": pool.namespace,
        "uid": pool.uid,
        "router": {
            "service": router.service,
            "deployment": router.owner[1] if router.owner else "",
            "deployment_uid": router.owner[2] if router.owner else "",
            "container": router.container,
            "image": router.image,
            "image_ids": list(router.image_ids),
            "config": {
                "kind": router.config.kind,
                "name": router.config.name,
                "key": router.config.key,
                "text": router.config.text,
                "digest": router.config.digest,
                "sure": router.config.sure,
            },
            "problems": list(router.problems),
        },
    }


def _objective(found: Json) -> Json:
    return {
        "name": found["metadata"]["name"],
        "api": found["apiVersion"],
        "spec": found.get("spec") or {},
    }


def _routes(objects: PathObjects, paths: Sequence[PathView], recorded: Json | None) -> list[Json]:
    pools = {(pool.namespace, pool.name) for path in paths for pool in path.pools}
    named = {(each["namespace"], each["name"]) for each in (recorded or {}).get("routes", ())}
    found = []
    for route in objects.routes:
        metadata = route["metadata"]
        if pools & pools_of_route(route) or (metadata["namespace"], metadata["name"]) in named:
            found.append(
                {
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "rules": rules_of(route),
                }
            )
    return sorted(found, key=lambda each: (each["namespace"], each["name"]))


def rules_of(route: Mapping[str, Any]) -> list[list[Json]]:
    """Per rule of an HTTPRoute its backends with their weights."""
    home = route["metadata"]["namespace"]
    return [
        [
            {
                "kind": ref.get("kind") or "Service",
                "namespace": ref.get("namespace") or home,
                "name": ref["name"],
                "weight": int(ref.get("weight", 1)),
            }
            for ref in rule.get("backendRefs") or ()
        ]
        for rule in (route.get("spec") or {}).get("rules") or ()
    ]


def _scaler(scaler: Scaler) -> Json:
    return _scaler_document(scaler.body)


def _scaler_document(body: Json) -> Json:
    """The settings that belong to it when nothing is paused: a pause of ours is taken out."""
    settings = settings_of(body)
    try:
        mark = mark_of(body)
    except UnreadableMark:
        mark = None
    if mark is not None:
        settings = merged(settings, give_back(mark.original, mark.paused, settings).settings)
    spec = {
        k: v for k, v in (body.get("spec") or {}).items() if k not in FIELDS[body["kind"]].get("spec", ())
    }
    return {
        "kind": body["kind"],
        "name": body["metadata"]["name"],
        "uid": body["metadata"]["uid"],
        "settings": {"spec": {**spec, **(settings.get("spec") or {})}, **_annotations(settings)},
    }


def _annotations(settings: Json) -> Json:
    return {"annotations": settings["annotations"]} if "annotations" in settings else {}


def _scalers_by_name(listed: Listed, aimed: Sequence[Scaler], recorded: Json | None) -> list[Json]:
    """Recorded scalers that aim at something else now, such as a set of another revision."""
    known = {each.uid for each in aimed}
    wanted = {(each["kind"], each["name"]) for each in (recorded or {}).get("scalers", ())}
    return [
        _scaler_document(body)
        for body in listed.bodies
        if body["metadata"]["uid"] not in known and (body["kind"], body["metadata"]["name"]) in wanted
    ]


def _transfer(roles: Sequence[Json], images: Json) -> Json:
    """Per role what must be equal for KV to move (policy/transfer); None where no engine is recognised."""
    found: Json = {}
    for role in roles:
        engine = engine_of(role) or {}
        ids = ((images.get(role["name"]) or {}).get(engine.get("name")) or {}).get("image_ids") or ()
        facts = engine_facts(role, [each for each in ids if each])
        found[role["name"]] = None if facts is None else transfer_fingerprint(facts)
    return found
