"""metadata.managedFields: who wrote which field last, and server-side apply, which goes by it.

An applier owns what it applies. What it applied before and does not name any more goes away, unless somebody else
owns it too; what another one owns with another value is a conflict, unless the applier forces it.
"""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.fields import Path, leaves, merge, nested, paths_of, take_away, written
from deploy.demo.emulator.frozen import thaw
from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.problems import ApiProblem

Doc = dict[str, Any]
_MISSING = object()


class _Owners:
    """The managedFields of one object as sets of paths."""

    def __init__(self, entries: list[Doc]) -> None:
        self._rows = [(dict(entry), set(paths_of(entry.get("fieldsV1") or {}))) for entry in entries]

    def of(self, manager: str, operation: str, subresource: str) -> tuple[Doc, set[Path]] | None:
        """The row of one writer."""
        for entry, paths in self._rows:
            if (entry["manager"], entry["operation"], entry.get("subresource", "")) == (
                manager,
                operation,
                subresource,
            ):
                return entry, paths
        return None

    def others(self, manager: str, operation: str, subresource: str) -> list[tuple[Doc, set[Path]]]:
        """The rows of all others."""
        own = self.of(manager, operation, subresource)
        return [row for row in self._rows if own is None or row[0] is not own[0]]

    def write(
        self,
        paths: set[Path],
        *,
        kind: Kind,
        manager: str,
        operation: str,
        subresource: str,
        time: str,
        moved: bool,
    ) -> None:
        """Let one writer own exactly these paths; its time changes when ``moved``, or when they do."""
        own = self.of(manager, operation, subresource)
        if own is None:
            entry: Doc = {"manager": manager, "operation": operation, "apiVersion": kind.api_version}
            if subresource:
                entry["subresource"] = subresource
            own = (entry, set())
            self._rows.append(own)
        entry, held = own
        if moved or held != paths or "time" not in entry:
            entry["time"] = time
        held.clear()
        held.update(paths)

    def documents(self) -> list[Doc]:
        """The entries that own anything."""
        keys = ("manager", "operation", "apiVersion", "time")
        return [
            {
                **{key: entry[key] for key in keys},
                "fieldsType": "FieldsV1",
                "fieldsV1": nested(paths),
                **({"subresource": entry["subresource"]} if entry.get("subresource") else {}),
            }
            for entry, paths in self._rows
            if paths
        ]


def track_update(kind: Kind, old: Doc | None, new: Doc, *, manager: str, subresource: str, time: str) -> None:
    """Note, in ``new``, that ``manager`` wrote what differs from ``old``: it alone owns that now."""
    before = leaves(old) if old else {}
    after = leaves(new)
    metadata = new["metadata"]
    known = (old or {}).get("metadata", {}).get("managedFields") or []
    changed = {path for path, value in after.items() if before.get(path, _MISSING) != value}
    gone = before.keys() - after.keys()
    if not changed and not gone:
        if known:
            metadata["managedFields"] = thaw(known)
        return
    owners = _Owners(thaw(known))
    for _, paths in owners.others(manager, "Update", subresource):
        paths -= changed
        paths -= gone
    own = owners.of(manager, "Update", subresource)
    held = {path for path in (own[1] if own else ()) if path in after} | changed
    owners.write(
        held,
        kind=kind,
        manager=manager,
        operation="Update",
        subresource=subresource,
        time=time,
        moved=bool(changed),
    )
    _put(metadata, owners)


def apply(
    kind: Kind, old: Doc | None, wanted: Doc, *, manager: str, force: bool, subresource: str, time: str
) -> Doc:
    """Server-side apply: the document that ``wanted`` makes of ``old``, managedFields included.

    Raises ApiProblem 409 with every conflict.
    """
    live: Doc = thaw(old) if old else {}
    fields = leaves(wanted)
    owners = _Owners(live.get("metadata", {}).get("managedFields") or [])
    others = owners.others(manager, "Apply", subresource)
    there = leaves(live) if live else {}
    differs = {path for path, value in fields.items() if there.get(path, _MISSING) not in (_MISSING, value)}
    if not force:
        _refuse_conflicts(differs, others)
    for _, paths in others:
        paths -= differs
    own = owners.of(manager, "Apply", subresource)
    left = {
        path
        for path in (own[1] if own else set()) - fields.keys()
        if not any(path in paths or _inside(path, paths) for _, paths in others)
    }
    merged = merge("", live, {key: value for key, value in wanted.items() if key != "metadata"})
    merged["metadata"] = merge("", live.get("metadata", {}), _given(wanted["metadata"]))
    # Entries of lists last: a field of an entry that goes altogether is gone with it.
    for path in sorted(left, key=lambda each: (each[-1] == ".", each)):
        take_away(merged, path)
    owners.write(
        set(fields),
        kind=kind,
        manager=manager,
        operation="Apply",
        subresource=subresource,
        time=time,
        moved=bool(differs or left),
    )
    _put(merged["metadata"], owners)
    return merged  # type: ignore[no-any-return]


def _given(metadata: Doc) -> Doc:
    return {
        key: value for key, value in metadata.items() if key not in ("managedFields", "creationTimestamp")
    }


def _inside(path: Path, paths: set[Path]) -> bool:
    """Whether somebody owns a field of the list entry that a path stands for."""
    return path[-1] == "." and any(each[: len(path) - 1] == path[:-1] for each in paths)


def _refuse_conflicts(differs: set[Path], others: list[tuple[Doc, set[Path]]]) -> None:
    causes = []
    for entry, paths in others:
        using = f'conflict with "{entry["manager"]}"'
        if entry.get("subresource"):
            using += f' with subresource "{entry["subresource"]}"'
        using += f" using {entry['apiVersion']}"
        for path in sorted(differs & paths):
            causes.append({"reason": "FieldManagerConflict", "message": using, "field": written(path)})
    if not causes:
        return
    number = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    listed = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    raise ApiProblem(409, "Conflict", f"Apply failed with {number}: {listed}", {"causes": causes})


def _put(metadata: Doc, owners: _Owners) -> None:
    if found := owners.documents():
        metadata["managedFields"] = found
    else:
        metadata.pop("managedFields", None)
