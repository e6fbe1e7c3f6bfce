"""What pausing has changed on a scaler, as it is written down: on the object itself and in the operation's memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from controlplane.kube.client import FIELD_MANAGER
from policy.rollout.scalers import allowed_settings, rest_of

Json = dict[str, Any]

PAUSED = "lockstep.dev/paused"


class UnreadableMark(Exception):
    """The annotation is there and is no record: somebody else wrote it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One record. `set` has namespace, name and uid of the set that is held. `original` and `paused` are what the
    changed fields were and became (None: not there); `rest` has a digest of each other field of the spec, to tell
    what somebody else changed meanwhile."""

    operation: str
    installation: str
    fence: int
    set: Json
    original: Json
    paused: Json
    rest: Mapping[str, str]

    def as_json(self) -> Json:
        """For the operation's memory."""
        return asdict(self)

    def as_annotation(self, body: Mapping[str, Any]) -> str:
        """For the object, with a line for a person at a shell."""
        metadata = body["metadata"]
        back = json.dumps(as_patch(self.original, {PAUSED: None}), separators=(",", ":"))
        line = (
            f"kubectl -n {metadata['namespace']} patch {body['kind'].lower()} {metadata['name']} --type=merge"
            f" -p '{back}'"
        )
        return json.dumps({**self.as_json(), "to-give-back": line}, separators=(",", ":"))


def as_patch(settings: Mapping[str, Any], annotations: Mapping[str, Any]) -> Json:
    """A merge patch of these settings and further annotations."""
    patch: Json = {}
    if spec := settings.get("spec"):
        patch["spec"] = spec
    if named := {**(settings.get("annotations") or {}), **annotations}:
        patch["metadata"] = {"annotations": named}
    return patch


def mark_of(body: Mapping[str, Any]) -> Mark | None:
    """The record on a scaler, None where there is none. Raises UnreadableMark."""
    text = (body["metadata"].get("annotations") or {}).get(PAUSED)
    if text is None:
        return None
    try:
        return read_mark(body["kind"], json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        name = f"{body['kind']} {body['metadata']['name']}"
        raise UnreadableMark(f"The annotation {PAUSED} on {name} cannot be read.") from error


def read_mark(kind: str, data: Mapping[str, Any]) -> Mark:
    """A record out of JSON, reduced to fields that pausing may touch. Raises ValueError, TypeError or KeyError."""
    held = data["set"]
    return Mark(
        operation=str(data["operation"]),
        installation=str(data["installation"]),
        fence=int(data["fence"]),
        set={key: str(held[key]) for key in ("namespace", "name", "uid")},
        original=allowed_settings(kind, data["original"]),
        paused=allowed_settings(kind, data["paused"]),
        rest={str(key): str(value) for key, value in dict(data["rest"]).items()},
    )


def rest_digests(body: Mapping[str, Any], paused: Mapping[str, Any]) -> dict[str, str]:
    """A digest of each field of the spec that pausing has not changed."""
    rest = rest_of(body.get("spec") or {}, paused.get("spec") or {})
    return {key: _digest(value) for key, value in rest.items()}


def last_other_writer(body: Mapping[str, Any]) -> str:
    """Field manager that wrote last, ours and status writes left out; empty where nobody did."""
    entries = [
        entry
        for entry in body["metadata"].get("managedFields") or []
        if not entry.get("subresource") and entry.get("manager") != FIELD_MANAGER
    ]
    entries.sort(key=lambda entry: entry.get("time") or "")
    return str(entries[-1].get("manager") or "") if entries else ""


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
