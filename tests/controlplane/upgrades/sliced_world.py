"""A cluster in memory around the recorded sliced set: enough of an API server, of the hold, and of a controller that
takes one planner step per slice and look, as the newer LeaderWorkerSet manager does. Not a proof of that manager."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Self

from controlplane.fleet.names import SET_REVISION, SET_ROLE, SET_SLICE, labels_of
from controlplane.holds.guards import shipped_guards
from controlplane.holds.live import child_key
from controlplane.holds.parameter import fence_of, is_holding, standing_box
from controlplane.kube.client import Listing
from controlplane.kube.errors import AlreadyExists, Conflict, Denied
from controlplane.kube.resources import (
    CONFIG_MAPS,
    DISAGGREGATED_SETS,
    LEADER_WORKER_SETS,
    LEASES,
    PODS,
    Resource,
)
from controlplane.operations.installation import LEASE_NAME, LEASE_NAMESPACE, this_installation
from policy.canonical import digest
from policy.rollout.box import Box, Key
from policy.rollout.planner import next_row
from tests.controlplane.memory_kube import At, MemoryKube
from tests.controlplane.upgrades.given import sliced

Json = dict[str, Any]


class SlicedWorld(MemoryKube):
    """Stands in for `Kube`; `history` is what the LeaderWorkerSets counted after each change."""

    def __init__(self, recorded: str = "settled") -> None:
        super().__init__()
        _, items = sliced(recorded)
        self._versions = itertools.count(1000)
        for item in items:
            self._put(item)
        for document in shipped_guards():
            self._put(
                {
                    **document,
                    "metadata": {
                        **document["metadata"],
                        "uid": document["metadata"]["name"],
                        "generation": 1,
                    },
                }
            )
        lease = {"holderIdentity": str(this_installation().pk), "leaseTransitions": 1}
        self._put(
            {
                "kind": LEASES.kind,
                "metadata": {"name": LEASE_NAME, "namespace": LEASE_NAMESPACE},
                "spec": lease,
            }
        )
        self.history: list[dict[Key, int]] = [self.counts()]
        self.boxes: list[Box] = []

    # --- the API server

    def close(self) -> None:
        """Nothing to close."""

    def fresh(self) -> Self:
        """The same world."""
        return self

    def list(
        self, resource: Resource, namespace: str | None = None, label_selector: str = "", **_: Any
    ) -> Listing:
        """Objects of a kind whose labels fit."""
        wanted = dict(part.split("=") for part in label_selector.split(",") if part)
        objects = self.objects | (self._pods() if resource == PODS else {})
        found = [
            deepcopy(item)
            for (kind, where, _name), item in sorted(objects.items())
            if kind == resource.kind
            and (namespace is None or where == namespace)
            and wanted.items() <= labels_of(item).items()
        ]
        return Listing(found, "1")

    def create(self, resource: Resource, body: Json, namespace: str | None = None) -> Json:
        """A new object."""
        where = body["metadata"].get("namespace", namespace or "")
        if self.find(resource, body["metadata"]["name"], where) is not None:
            raise AlreadyExists("there already", status=409)
        return self._put({**deepcopy(body), "kind": resource.kind})

    def replace(self, resource: Resource, body: Json, *, dry_run: bool = False) -> Json:
        """Under the resourceVersion in the body."""
        metadata = body["metadata"]
        stands = self.get(resource, metadata["name"], metadata.get("namespace"))
        if stands["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise Conflict("moved on", status=409)
        if dry_run:
            return deepcopy(body)
        if resource == CONFIG_MAPS:
            assert fence_of(body) >= fence_of(stands), "the guard refuses a lower number"
            self.boxes.append(standing_box(body) if is_holding(body) else Box())
        stored = self._put(body)
        self._reconcile(resource)
        return stored

    def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        body: Json,
        *,
        resource_version: str | None,
        dry_run: bool = False,
    ) -> Json:
        """A merge of metadata and spec."""
        stands = self.get(resource, name, namespace)
        if resource_version not in (None, stands["metadata"]["resourceVersion"]):
            raise Conflict("moved on", status=409)
        if resource == LEADER_WORKER_SETS:
            self._admit(stands, int(body["spec"]["replicas"]))
        if dry_run:
            return stands
        annotations = {
            **stands["metadata"].get("annotations", {}),
            **body.get("metadata", {}).get("annotations", {}),
        }
        stands["metadata"]["annotations"] = annotations
        stands["spec"] = {**stands["spec"], **body.get("spec", {})}
        stored = self._put(stands)
        self._reconcile(resource)
        return stored

    def _put(self, item: Json) -> Json:
        stored = deepcopy(item)
        metadata = stored["metadata"]
        metadata["resourceVersion"] = str(next(self._versions))
        metadata.setdefault("uid", f"uid-{metadata['resourceVersion']}")
        metadata.setdefault("creationTimestamp", "2026-11-30T04:00:00Z")
        self.objects[(stored["kind"], metadata.get("namespace", ""), metadata["name"])] = stored
        return deepcopy(stored)

    def _pods(self) -> dict[At, Json]:
        """A leader for every group, as old as its LeaderWorkerSet: nothing restarts here."""
        made: dict[At, Json] = {}
        for child in self.children():
            metadata = child["metadata"]
            for index in range(int(child["spec"]["replicas"])):
                name = f"{metadata['name']}-{index}"
                kept = {key: metadata[key] for key in ("namespace", "labels", "creationTimestamp")}
                body: Json = {"kind": "Pod", "spec": {"containers": []}, "status": {}}
                body["metadata"] = {**kept, "name": name, "uid": f"uid-{name}"}
                made["Pod", metadata["namespace"], name] = body
        return made

    # --- the hold

    def parameter(self) -> Json | None:
        """The one hold parameter."""
        return next(
            (
                o
                for (kind, _, name), o in self.objects.items()
                if kind == "ConfigMap" and name.startswith("hold-")
            ),
            None,
        )

    def _admit(self, child: Json, replicas: int) -> None:
        parameter = self.parameter()
        if parameter is None or not is_holding(parameter):
            return
        box, key, was = standing_box(parameter), child_key(child), int(child["spec"]["replicas"])
        floor, ceiling = box.floors.get(key, 0), box.ceilings.get(key, 0)
        if not (replicas >= floor if replicas < was else replicas <= ceiling):
            raise Denied(
                f"lockstep hold {parameter['data']['operation']}: {child['metadata']['name']} {was} -> {replicas}, "
                f"allowed {floor}..{ceiling}, fence {parameter['data']['fence']}",
                status=403,
            )

    # --- the controller

    @property
    def body(self) -> Json:
        """The set."""
        return next(o for (kind, _, _name), o in self.objects.items() if kind == DISAGGREGATED_SETS.kind)

    def children(self) -> list[Json]:
        """Its LeaderWorkerSets."""
        return [o for (kind, _, _name), o in self.objects.items() if kind == LEADER_WORKER_SETS.kind]

    def counts(self) -> dict[Key, int]:
        """Groups wanted of every LeaderWorkerSet."""
        return {child_key(child): int(child["spec"]["replicas"]) for child in self.children()}

    def wanted(self, role: Json) -> int:
        """Groups that the controller goes for in a role."""
        return int(role["spec"]["replicas"])

    def _reconcile(self, resource: Resource) -> None:
        if resource != DISAGGREGATED_SETS:
            return  # it looks when the set is touched, as a controller that backs off does
        for slice_key in self._slices():
            try:
                while self._step(slice_key):
                    self.history.append(self.counts())
            except Denied:
                continue  # this slice ends in an error, the others go on
        self.history.append(self.counts())

    def _slices(self) -> Iterator[str]:
        return map(str, range(self.body["spec"].get("slices", 1)))

    def _label(self) -> str:
        """Of the templates: that of the children which have them, else a new one."""
        roles = self.body["spec"]["roles"]
        content = [[role["name"], role["spec"]["leaderWorkerTemplate"]] for role in roles]
        return self._known.setdefault(digest(content), digest(content)[7:15])

    @property
    def _known(self) -> dict[str, str]:
        if not hasattr(self, "_labels"):
            first = next(labels_of(child)[SET_REVISION] for child in self.children())
            roles = self.body["spec"]["roles"]
            content = [[role["name"], role["spec"]["leaderWorkerTemplate"]] for role in roles]
            self._labels = {digest(content): first}
        return self._labels

    def _step(self, slice_key: str) -> bool:
        """One planner step of a slice; whether anything changed. Raises Denied where the hold refuses."""
        label, roles = self._label(), self.body["spec"]["roles"]
        mine = {
            (labels_of(c)[SET_REVISION], labels_of(c)[SET_ROLE]): c
            for c in self.children()
            if labels_of(c).get(SET_SLICE) == slice_key
        }
        others = {at: c for at, c in mine.items() if at[0] != label}
        if others and not any(int(c["spec"]["replicas"]) for c in others.values()):
            for child in others.values():
                del self.objects[
                    ("LeaderWorkerSet", child["metadata"]["namespace"], child["metadata"]["name"])
                ]
            return True
        if not any(at[0] == label for at in mine):
            for role in roles:
                self._make(slice_key, label, role)
            return True
        names = [role["name"] for role in roles]
        old = tuple(
            sum(int(c["spec"]["replicas"]) for at, c in others.items() if at[1] == name) for name in names
        )
        new = tuple(int(mine[label, name]["spec"]["replicas"]) for name in names)
        target = tuple(self.wanted(role) for role in roles)
        initial = self._initial.setdefault((slice_key, label), old)
        row = next_row(
            initial=initial,
            old=old,
            new=new,
            target=target,
            surge=(1,) * len(names),
            unavailable=(0,) * len(names),
        )
        if row is None:
            return False
        changed = False
        for name, count in zip(names, row.new, strict=True):
            changed |= self._scale(mine[label, name], count)
        for (_, name), child in others.items():
            changed |= self._scale(child, row.old[names.index(name)])
        return changed

    @property
    def _initial(self) -> dict[tuple[str, str], tuple[int, ...]]:
        if not hasattr(self, "_starts"):
            self._starts: dict[tuple[str, str], tuple[int, ...]] = {}
        return self._starts

    def _scale(self, child: Json, replicas: int) -> bool:
        if int(child["spec"]["replicas"]) == replicas:
            return False
        self._admit(child, replicas)
        child["spec"]["replicas"] = replicas
        child["status"] = {**child.get("status", {}), "readyReplicas": replicas, "replicas": replicas}
        self._put(child)
        return True

    def _make(self, slice_key: str, label: str, role: Json) -> None:
        name = self.body["metadata"]["name"]
        model = next(c for c in self.children() if labels_of(c)[SET_ROLE] == role["name"])
        made = deepcopy(model)
        injected = {**labels_of(model), SET_SLICE: slice_key, SET_REVISION: label}
        template = deepcopy(role["spec"]["leaderWorkerTemplate"])
        worker = template["workerTemplate"]
        worker["metadata"] = {
            **worker.get("metadata", {}),
            "labels": {**worker.get("metadata", {}).get("labels", {}), **injected},
        }
        made["metadata"] = {
            "name": f"{name}-{slice_key}-{label}-{role['name']}",
            "namespace": model["metadata"]["namespace"],
            "labels": injected,
            "generation": 1,
            "ownerReferences": model["metadata"]["ownerReferences"],
        }
        made["spec"] = {**model["spec"], "replicas": 0, "leaderWorkerTemplate": template}
        made["status"] = {"observedGeneration": 1, "readyReplicas": 0, "replicas": 0}
        self._put(made)
