"""CustomResourceDefinitions as documents, and the kinds that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deploy.demo.emulator.kinds import Kind

Doc = dict[str, Any]
REF = "customresourcedefinitions.apiextensions.k8s.io"


def kind_of(definition: Doc) -> Kind:
    """The kind that a definition serves; the stored version first."""
    spec = definition["spec"]
    names = spec["names"]
    served = [each for each in spec["versions"] if each.get("served", True)]
    stored = next(each for each in spec["versions"] if each.get("storage"))
    below = stored.get("subresources") or {}
    scale = below.get("scale")
    return Kind(
        spec["group"],
        stored["name"],
        names["plural"],
        names["kind"],
        namespaced=spec.get("scope") != "Cluster",
        status="status" in below,
        spec_counts=True,
        scale=(
            (scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", ""))
            if scale
            else None
        ),
        blind_put=False,
        custom=True,
        also=tuple(each["name"] for each in served if each["name"] != stored["name"]),
        short=tuple(names.get("shortNames") or ()),
        schema={
            each["name"]: (each.get("schema") or {}).get("openAPIV3Schema") or {} for each in spec["versions"]
        },
    )


def complete(definition: Doc, now: str) -> None:
    """Fill in what the server does, its status included: a definition is established at once here."""
    spec = definition["spec"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})
    status = definition.setdefault("status", {})
    status["acceptedNames"] = dict(names)
    status["storedVersions"] = [each["name"] for each in spec["versions"] if each.get("storage")]
    if not status.get("conditions"):
        status["conditions"] = [
            {"type": type_, "status": "True", "reason": reason, "message": said, "lastTransitionTime": now}
            for type_, reason, said in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ]


# --- a short way to write schemas


def obj(required: Sequence[str] = (), /, **fields: Doc) -> Doc:
    """An object with these fields and no others."""
    made: Doc = {"type": "object"}
    if fields:
        made["properties"] = fields
    if required:
        made["required"] = list(required)
    return made


def wide(required: Sequence[str] = (), /, **fields: Doc) -> Doc:
    """An object that keeps what is not named here."""
    return {**obj(required, **fields), "x-kubernetes-preserve-unknown-fields": True}


def ruled(schema: Doc, *rules: Doc) -> Doc:
    """With CEL rules."""
    return {**schema, "x-kubernetes-validations": list(rules)}


def arr(items: Doc, *, by: Sequence[str] = (), **limits: int) -> Doc:
    """A list; ``by`` the fields that make an entry."""
    made: Doc = {"type": "array", "items": items, **limits}
    if by:
        made |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(by)}
    return made


def text(*enum: str, default: str | None = None, **limits: Any) -> Doc:
    """A string, of some where they are named."""
    made: Doc = {"type": "string", **limits}
    if enum:
        made["enum"] = list(enum)
    return made if default is None else {**made, "default": default}


def number(default: int | None = None, **limits: int) -> Doc:
    """A 32-bit integer."""
    made: Doc = {"type": "integer", "format": "int32", **limits}
    return made if default is None else {**made, "default": default}


def share(default: int) -> Doc:
    """A number or a percentage."""
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        "default": default,
    }


def texts() -> Doc:
    """A map of strings."""
    return {"type": "object", "additionalProperties": {"type": "string"}}


def definition(
    group: str,
    versions: Sequence[str],
    plural: str,
    kind: str,
    schema: Doc,
    *,
    namespaced: bool = True,
    short: Sequence[str] = (),
    scale: Doc | None = None,
) -> Doc:
    """A definition; the first version is the stored one, and all have the same schema."""
    names: Doc = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    if short:
        names["shortNames"] = list(short)
    below: Doc = {"status": {}, **({"scale": scale} if scale else {})}
    listed = [
        {
            "name": name,
            "served": True,
            "storage": index == 0,
            "schema": {"openAPIV3Schema": schema},
            "subresources": below,
        }
        for index, name in enumerate(versions)
    ]
    scope = "Namespaced" if namespaced else "Cluster"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": listed},
    }
