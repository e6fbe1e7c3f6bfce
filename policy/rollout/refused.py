"""Which differences between two versions of a set's roles Lockstep does not write itself.

A draft written as whole YAML can touch anything in a pod. Whoever may change service account, volumes or
security context can act with rights of the pod, so those changes are left to the owner of the set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policy.rollout.draft_fields import PACE_FIELDS, PROBES, RESOURCE_KINDS
from policy.rollout.refusal import Refusal

_TEMPLATES = ("leaderTemplate", "workerTemplate")
_FREE_IN_CONTAINER = {"image", "args", *PROBES}
_EXPORT = "undo this, or export the plan and let the owner of the set write it"

# What a change of these would mean; anything else is refused with a general sentence.
_MEANING = {
    "serviceAccountName": "the account that the pods act as",
    "serviceAccount": "the account that the pods act as",
    "automountServiceAccountToken": "whether the pods get a token of the cluster",
    "volumes": "which Secrets, ConfigMaps and host paths the pods can read",
    "volumeMounts": "which Secrets, ConfigMaps and host paths the container can read",
    "volumeDevices": "which devices of the host the container can read",
    "volumeClaimTemplates": "which storage the pods get",
    "securityContext": "what the pods may do on their host",
    "hostNetwork": "what the pods may do on their host",
    "hostPID": "what the pods may do on their host",
    "hostIPC": "what the pods may do on their host",
    "hostUsers": "what the pods may do on their host",
    "envFrom": "which Secrets and ConfigMaps the container reads",
    "initContainers": "what else runs in the pods",
    "ephemeralContainers": "what else runs in the pods",
    "command": "which program of the image runs",
    "lifecycle": "which program runs at start and stop",
    "nodeName": "where the pods run",
    "nodeSelector": "where the pods run",
    "affinity": "where the pods run",
    "tolerations": "where the pods run",
    "topologySpreadConstraints": "where the pods run",
    "schedulerName": "where the pods run",
    "runtimeClassName": "how the pods are isolated",
    "priorityClassName": "which other pods they may displace",
    "imagePullSecrets": "which Secrets the pods use",
    "resourceClaims": "which devices the pods claim",
    "claims": "which devices the container claims",
    "metadata": "labels and annotations, which routers and policies select by",
    "size": "how many pods are one group",
    "scaling": "who owns the number of groups",
}


def refused_changes(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[Refusal]:
    """Every change from `before` to `after` that is not in a draft's fields, by path; empty when all may go.

    Both are lists of roles as stored by the API server: take `after` from a dry run, so that its defaults are
    filled in. Allowed are replicas, maxSurge and maxUnavailable, and in containers of the leader and worker
    template image, arguments, plain variables, limits, requests and probes.
    """
    old, new = _by_name(before), _by_name(after)
    if list(old) != list(new):
        return list(_roles_changed(list(old), list(new)))
    return [refusal for name, role in old.items() for refusal in _role(role, new[name], f"roles[{name}]")]


def _by_name(items: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {str(item.get("name")): item for item in items}


def _refuse(path: str, meaning: str = "") -> Refusal:
    key = path.rsplit(".", 1)[-1].split("[", 1)[0]
    meaning = meaning or _MEANING.get(key, "")
    sentence = f"{path} differs; it decides {meaning}" if meaning else f"{path} differs"
    return Refusal("change-refused", f"{sentence}, and is not changed by an upgrade", _EXPORT, path)


def _roles_changed(old: list[str], new: list[str]) -> Iterator[Refusal]:
    moved = sorted(old) == sorted(new)
    for name in new:
        if name not in old:
            yield _refuse(f"roles[{name}]", "which roles exist (this one is new)")
    for name in old:
        if name not in new:
            yield _refuse(f"roles[{name}]", "which roles exist (this one is gone)")
    if moved:
        yield _refuse("roles", "the order of the roles, which is part of the revision")


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Keys with another value, an absent key being like null."""
    return [key for key in {**old, **new} if old.get(key) != new.get(key)]


def _part(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = holder.get(key)
    return part if isinstance(part, Mapping) else {}


def _role(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    for key in _differing(old, new):
        if key != "spec":
            yield _refuse(f"{path}.{key}")
    spec, other = _part(old, "spec"), _part(new, "spec")
    for key in _differing(spec, other):
        where = f"{path}.spec.{key}"
        if key == "leaderWorkerTemplate":
            yield from _group(_part(spec, key), _part(other, key), where)
        elif key == "rolloutStrategy":
            yield from _strategy(_part(spec, key), _part(other, key), where)
        elif key != "replicas":
            yield _refuse(where)


def _strategy(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    # A block that appears brings its type and a partition of 0 along.
    given = {"type": "RollingUpdate"}
    block = "rollingUpdateConfiguration"
    for key in _differing({**given, **old}, {**given, **new}):
        if key != block:
            yield _refuse(f"{path}.{key}")
    for key in _differing({"partition": 0, **_part(old, block)}, {"partition": 0, **_part(new, block)}):
        if key not in PACE_FIELDS:
            yield _refuse(f"{path}.{block}.{key}")


def _group(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    for key in _differing(old, new):
        where = f"{path}.{key}"
        if key in _TEMPLATES and isinstance(old.get(key), Mapping) and isinstance(new.get(key), Mapping):
            yield from _template(old[key], new[key], where)
        else:
            yield _refuse(where)


def _template(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    for key in _differing(old, new):
        if key != "spec":
            yield _refuse(f"{path}.{key}")
    spec, other = _part(old, "spec"), _part(new, "spec")
    for key in _differing(spec, other):
        where = f"{path}.spec.{key}"
        if key == "containers":
            yield from _containers(spec.get(key) or [], other.get(key) or [], where)
        else:
            yield _refuse(where)


def _containers(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], path: str
) -> Iterator[Refusal]:
    if [each.get("name") for each in old] != [each.get("name") for each in new]:
        yield _refuse(path, "which containers run in the pods, by name and order")
        return
    for container, other in zip(old, new, strict=True):
        yield from _container(container, other, f"{path}[{container.get('name')}]")


def _container(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Refusal]:
    for key in _differing(old, new):
        where = f"{path}.{key}"
        if key == "env":
            yield from _variables(old.get(key) or [], new.get(key) or [], where)
        elif key == "resources":
            for kind in _differing(_part(old, key), _part(new, key)):
                if kind not in RESOURCE_KINDS:
                    yield _refuse(f"{where}.{kind}")
        elif key not in _FREE_IN_CONTAINER:
            yield _refuse(where)


def _variables(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], path: str
) -> Iterator[Refusal]:
    if any(len(_by_name(entries)) != len(entries) for entries in (old, new)):
        yield _refuse(path, "a variable twice, so that its value depends on the order")
        return
    before, after = _by_name(old), _by_name(new)
    for name in {**before, **after}:
        entry, other = before.get(name, {}), after.get(name, {})
        if entry.get("valueFrom") != other.get("valueFrom"):
            yield _refuse(f"{path}[{name}].valueFrom", "which Secret or ConfigMap a variable is read from")
