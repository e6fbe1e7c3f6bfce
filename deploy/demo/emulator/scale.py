"""The scale subresource: one number of an object, as a document that is the same for every kind."""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.frozen import thaw
from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.problems import invalid

Doc = dict[str, Any]


def scale_of(kind: Kind, doc: Doc) -> Doc:
    """An object's Scale."""
    assert kind.scale is not None
    spec_path, status_path, selector_path = kind.scale
    keys = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Doc = {"replicas": read(doc, status_path) or 0}
    if selector := read(doc, selector_path):
        status["selector"] = selector if isinstance(selector, str) else _written(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: doc["metadata"][key] for key in keys if key in doc["metadata"]},
        "spec": {"replicas": read(doc, spec_path) or 0},
        "status": status,
    }


def set_replicas(kind: Kind, doc: Doc, scale: Doc) -> Doc:
    """A copy of the object with the number of a Scale. Raises ApiProblem 422 below 0."""
    assert kind.scale is not None
    wanted = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(wanted, int) or wanted < 0:
        why = f"Invalid value: {wanted}: must be greater than or equal to 0"
        raise invalid(kind, doc["metadata"]["name"], [("spec.replicas", "FieldValueInvalid", why)])
    new: Doc = thaw(doc)
    *path, last = kind.scale[0].strip(".").split(".")
    at = new
    for step in path:
        at = at.setdefault(step, {})
    at[last] = wanted
    return new


def read(doc: Doc, path: str) -> Any:
    """The value at a path such as ``.spec.replicas``, or None."""
    at: Any = doc
    for step in filter(None, path.split(".")):
        at = at.get(step) if isinstance(at, dict) else None
    return at


def _written(selector: Doc) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items()))
