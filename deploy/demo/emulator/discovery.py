"""What the server says about itself: its groups, versions and kinds, its release, the schemas of its kinds."""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.address import REVIEWS
from deploy.demo.emulator.kinds import Kind, Kinds
from deploy.demo.emulator.problems import no_such_path

Doc = dict[str, Any]
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3+lockstep-emulator",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "python",
}
_REVIEW_VERBS = ["create"]


def answer(path: str, kinds: Kinds) -> Doc:
    """The document at a discovery path. Raises ApiProblem 404 for any other path."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = [_group(name, kinds) for name in _groups(kinds)]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", version]:
            return _resources("", version, kinds)
        case ["apis", group]:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, kinds)}
        case ["apis", group, version]:
            return _resources(group, version, kinds)
        case ["openapi", "v3"]:
            return {
                "paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}"} for name in _all_versions(kinds)}
            }
        case ["openapi", "v3", "api", version]:
            return _schemas("", version, kinds)
        case ["openapi", "v3", "apis", group, version]:
            return _schemas(group, version, kinds)
    raise no_such_path()


def _served(kinds: Kinds) -> dict[str, list[str]]:
    """Versions by group, in the order of the catalogue."""
    found: dict[str, list[str]] = {}
    for kind in kinds:
        for version in kind.versions:
            if version not in found.setdefault(kind.group, []):
                found[kind.group].append(version)
    for group, version in REVIEWS:
        found.setdefault(group, [version])
    return found


def _groups(kinds: Kinds) -> list[str]:
    return [group for group in _served(kinds) if group]


def _all_versions(kinds: Kinds) -> list[str]:
    return [
        f"apis/{group}/{version}" if group else f"api/{version}"
        for group, versions in _served(kinds).items()
        for version in versions
    ]


def _group(group: str, kinds: Kinds) -> Doc:
    versions = _served(kinds).get(group) if group else None
    if not versions:
        raise no_such_path()
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _resources(group: str, version: str, kinds: Kinds) -> Doc:
    found: list[Doc] = []
    for kind in kinds:
        if kind.group == group and version in kind.versions:
            found += _entries(kind)
    for plural, (name, namespaced) in REVIEWS.get((group, version), {}).items():
        found.append({"name": plural, "namespaced": namespaced, "kind": name, "verbs": _REVIEW_VERBS})
    if not found:
        raise no_such_path()
    named = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": named, "resources": found}


def _entries(kind: Kind) -> list[Doc]:
    entry: Doc = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short:
        entry["shortNames"] = list(kind.short)
    below: Doc = {"singularName": "", "namespaced": kind.namespaced, "kind": kind.kind}
    entries = [entry]
    if kind.status:
        entries.append({**below, "name": f"{kind.plural}/status", "verbs": ["get", "patch", "update"]})
    if kind.scale:
        scale = {
            "group": "autoscaling",
            "version": "v1",
            "kind": "Scale",
            "verbs": ["get", "patch", "update"],
        }
        entries.append({**below, "name": f"{kind.plural}/scale", **scale})
    for name in kind.subresources:
        entries.append({**below, "name": f"{kind.plural}/{name}", "verbs": ["create", "get"]})
    return entries


def _schemas(group: str, version: str, kinds: Kinds) -> Doc:
    """OpenAPI v3 of one version, of the kinds whose schema is known."""
    found: Doc = {}
    for kind in kinds:
        if kind.group == group and version in kind.versions and (schema := kind.schema.get(version)):
            of = [{"group": group, "version": version, "kind": kind.kind}]
            found[f"{group}.{version}.{kind.kind}"] = {**schema, "x-kubernetes-group-version-kind": of}
    if not found and version not in _served(kinds).get(group, []):
        raise no_such_path()
    info = {"title": "Kubernetes, emulated", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": {}, "components": {"schemas": found}}
