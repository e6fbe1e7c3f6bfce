"""A DisaggregatedSet as it is: slices → revisions → roles → groups → pods, from live objects alone.

Pure: dicts in, frozen values out, time as an argument. The watcher calls it on its store, steps on live
reads. Works for every version, because it reads child LeaderWorkerSets and pods; the set's own status,
which 0.9.0 never writes, is carried as a hint and decides nothing (digest 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.fleet.names import (
    INITIAL_REPLICAS,
    LWS_NAME,
    SET_NAME,
    SET_REVISION,
    SET_ROLE,
    created_at,
    labels_of,
    owner_uid,
    read_time,
    slice_of,
    write_time,
)
from controlplane.fleet.pods import GroupView, derive_groups
from controlplane.fleet.target import find_target

Json = dict[str, Any]
Place = tuple[str, str, str]  # slice, revision label, role


@dataclass(frozen=True, slots=True)
class RoleView:
    """One LeaderWorkerSet. `wanted` is its spec.replicas in groups; `reported` the ready groups of its
    status, which is what the controller waits for; `ready` the ready groups counted from pods, which is
    what serves. `observed`: the status belongs to the present spec."""

    role: str
    name: str
    uid: str
    resource_version: str
    created_at: datetime | None
    wanted: int
    reported: int
    observed: bool
    initial: int | None
    size: int
    groups: tuple[GroupView, ...]
    progress_since: datetime | None
    containers: Mapping[str, Json]
    leaving: bool

    @property
    def ready(self) -> int:
        """Ready groups, counted from pods."""
        return sum(1 for group in self.groups if group.ready)

    @property
    def unready_since(self) -> datetime | None:
        """Since when the group that has been waiting longest is not ready; None while all wanted groups are.

        A group that has no pod yet waits since the set last began to progress."""
        if self.reported == self.wanted and self.ready >= self.wanted:
            return None
        waiting = [group.unready_since for group in self.groups if not group.ready and group.unready_since]
        if len(self.groups) < self.wanted and (since := self.progress_since or self.created_at):
            waiting.append(since)
        return min(waiting, default=self.progress_since or self.created_at)

    def as_json(self) -> Json:
        """The role with its groups; without resourceVersion, which changes without meaning."""
        return {
            "name": self.name,
            "uid": self.uid,
            "wanted": self.wanted,
            "ready": self.ready,
            "reported": self.reported,
            "size": self.size,
            "containers": {name: dict(each) for name, each in self.containers.items()},
            "leaving": self.leaving,
            "groups": [group.as_json() for group in self.groups],
        }


@dataclass(frozen=True, slots=True)
class RevisionView:
    """One revision in one slice; roles by name."""

    label: str
    started_at: datetime | None
    roles: Mapping[str, RoleView]

    @property
    def wanted(self) -> int:
        """Groups of all roles."""
        return sum(role.wanted for role in self.roles.values())

    def as_json(self) -> Json:
        """The revision with its roles."""
        return {
            "label": self.label,
            "started_at": write_time(self.started_at),
            "roles": {name: role.as_json() for name, role in self.roles.items()},
        }


@dataclass(frozen=True, slots=True)
class SliceView:
    """One independent copy of the set; revisions by label, oldest first."""

    key: str
    revisions: Mapping[str, RevisionView]


@dataclass(frozen=True, slots=True)
class SetView:
    """One set. `desired` maps each role, in order, to its groups per slice (None: an outside scaler decides).

    `started` maps each label to its incarnation start: the earliest creation of its LeaderWorkerSets;
    `members` to their UIDs. `strangers` are LeaderWorkerSets that carry the set's name and belong to
    something else."""

    uid: str
    namespace: str
    name: str
    generation: int
    resource_version: str
    deleting: bool
    desired: Mapping[str, int | None]
    slice_keys: tuple[str, ...]
    target: str
    target_certain: bool
    slices: Mapping[str, SliceView]
    started: Mapping[str, datetime]
    members: Mapping[str, tuple[str, ...]]
    strangers: tuple[str, ...]
    hint: Json = field(default_factory=dict)

    def role(self, slice_key: str, revision: str, role: str) -> RoleView | None:
        """The LeaderWorkerSet at a place, or None."""
        slice_view = self.slices.get(slice_key)
        revision_view = slice_view.revisions.get(revision) if slice_view else None
        return revision_view.roles.get(role) if revision_view else None

    def places(self) -> dict[Place, RoleView]:
        """Every LeaderWorkerSet by (slice, revision, role)."""
        return {
            (key, label, name): role
            for key, slice_view in self.slices.items()
            for label, revision in slice_view.revisions.items()
            for name, role in revision.roles.items()
        }

    def counts(self) -> dict[Place, int]:
        """Groups wanted at every place: what a hold limits."""
        return {place: role.wanted for place, role in self.places().items()}

    def as_json(self) -> Json:
        """Everything that screens show, as JSON values."""
        return {
            "target": self.target,
            "target_certain": self.target_certain,
            "deleting": self.deleting,
            "roles": [{"name": name, "desired": desired} for name, desired in self.desired.items()],
            "slices": [
                {"slice": key, "revisions": [each.as_json() for each in view.revisions.values()]}
                for key, view in self.slices.items()
            ],
            "strangers": list(self.strangers),
        }


def derive_set(
    ds: Mapping[str, Any],
    children: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]] = (),
    *,
    recorded: Mapping[str, str] | None = None,
) -> SetView:
    """The view of one set. `children` are LeaderWorkerSets and `pods` pods of its namespace; others are
    ignored.

    `recorded` maps revision labels to the templates digest under which they were seen (see
    target.find_target).
    """
    metadata, spec = ds["metadata"], ds["spec"]
    mine, strangers = _split_children(ds, children)
    roles: Sequence[Json] = spec.get("roles") or []
    target = find_target(
        roles=roles,
        children=mine,
        places_itself=((spec.get("placementPolicy") or {}).get("type") or "None") != "None",
        recorded=recorded or {},
    )
    started, members = _incarnations(mine)
    return SetView(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        generation=int(metadata.get("generation") or 0),
        resource_version=str(metadata.get("resourceVersion") or ""),
        deleting=bool(metadata.get("deletionTimestamp")),
        desired={role["name"]: _desired(role) for role in roles},
        slice_keys=tuple(str(index) for index in range(int(spec.get("slices") or 1))),
        target=target.label,
        target_certain=target.certain,
        slices=_derive_slices(mine, _by_child(pods), [role["name"] for role in roles]),
        started=started,
        members=members,
        strangers=tuple(sorted(each["metadata"]["name"] for each in strangers)),
        hint=dict(ds.get("status") or {}),
    )


def derive_role(child: Mapping[str, Any], pods: Iterable[Mapping[str, Any]] = ()) -> RoleView:
    """One LeaderWorkerSet and its pods."""
    metadata, spec, status = child["metadata"], child.get("spec") or {}, child.get("status") or {}
    template = spec.get("leaderWorkerTemplate") or {}
    size = int(template.get("size") or 1)
    generation = int(metadata.get("generation") or 0)
    born = created_at(child)
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    initial = (metadata.get("annotations") or {}).get(INITIAL_REPLICAS, "")
    wanted = spec.get("replicas")
    return RoleView(
        role=labels_of(child).get(SET_ROLE, ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resource_version=str(metadata.get("resourceVersion") or ""),
        created_at=born,
        wanted=1 if wanted is None else int(wanted),
        reported=int(status.get("readyReplicas") or 0),
        observed=int(status.get("observedGeneration") or generation) >= generation,
        initial=int(initial) if initial.isdigit() else None,
        size=size,
        groups=derive_groups(pods, size=size, not_before=born),
        progress_since=read_time((conditions.get("Available") or {}).get("lastTransitionTime")),
        containers=_containers(template),
        leaving=bool(metadata.get("deletionTimestamp")),
    )


def _split_children(
    ds: Mapping[str, Any], children: Iterable[Mapping[str, Any]]
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Children of this very set, and objects that carry its name but belong to something else."""
    metadata = ds["metadata"]
    mine, strangers = [], []
    for child in children:
        if child["metadata"].get("namespace") != metadata["namespace"]:
            continue
        if owner_uid(child, "DisaggregatedSet") == metadata["uid"]:
            mine.append(child)
        elif labels_of(child).get(SET_NAME) == metadata["name"]:
            strangers.append(child)
    return mine, strangers


def _by_child(pods: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for pod in pods:
        if name := labels_of(pod).get(LWS_NAME):
            found.setdefault(f"{pod['metadata'].get('namespace', '')}/{name}", []).append(pod)
    return found


def _derive_slices(
    children: Iterable[Mapping[str, Any]],
    pods: Mapping[str, list[Mapping[str, Any]]],
    role_order: Sequence[str],
) -> dict[str, SliceView]:
    places: dict[str, dict[str, dict[str, RoleView]]] = {}
    for child in children:
        labels, metadata = labels_of(child), child["metadata"]
        role = derive_role(child, pods.get(f"{metadata.get('namespace', '')}/{metadata['name']}", ()))
        revisions = places.setdefault(slice_of(child), {})
        revisions.setdefault(labels.get(SET_REVISION, ""), {})[role.role] = role
    return {
        key: SliceView(key, _in_order(revisions, role_order))
        for key, revisions in sorted(places.items(), key=lambda item: (len(item[0]), item[0]))
    }


def _in_order(
    revisions: Mapping[str, dict[str, RoleView]], role_order: Sequence[str]
) -> dict[str, RevisionView]:
    rank = {name: index for index, name in enumerate(role_order)}
    views = []
    for label, roles in revisions.items():
        ordered = dict(sorted(roles.items(), key=lambda item: (rank.get(item[0], len(rank)), item[0])))
        started = min((role.created_at for role in roles.values() if role.created_at), default=None)
        views.append(RevisionView(label, started, ordered))
    views.sort(key=lambda view: (view.started_at is None, view.started_at or 0, view.label))
    return {view.label: view for view in views}


def _incarnations(
    children: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, datetime], dict[str, tuple[str, ...]]]:
    started: dict[str, datetime] = {}
    members: dict[str, list[str]] = {}
    for child in children:
        label = labels_of(child).get(SET_REVISION, "")
        if not label:
            continue
        members.setdefault(label, []).append(child["metadata"].get("uid", ""))
        if born := created_at(child):
            started[label] = min(born, started.get(label, born))
    return started, {label: tuple(sorted(uids)) for label, uids in members.items()}


def _desired(role: Mapping[str, Any]) -> int | None:
    if (role.get("scaling") or {}).get("mode") == "External":
        return None
    replicas = (role.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def _containers(template: Mapping[str, Any]) -> dict[str, Json]:
    """What the engines are started with: image, command and arguments per container. Environment stays
    out."""
    found: dict[str, Json] = {}
    for name in ("leaderTemplate", "workerTemplate"):
        pod_spec = (template.get(name) or {}).get("spec") or {}
        for container in pod_spec.get("containers") or ():
            found.setdefault(
                f"{name.removesuffix('Template')}/{container['name']}",
                {
                    "image": container.get("image", ""),
                    "command": list(container.get("command") or ()),
                    "args": list(container.get("args") or ()),
                },
            )
    return found
