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


class _Row:
    """One entry of managedFields; its paths are read only when somebody asks for them."""

    def __init__(self, entry: Doc) -> None:
        self.entry = entry
        self._paths: set[Path] | None = None

    @property
    def paths(self) -> set[Path]:
        if self._paths is None:
            self._paths = set(paths_of(self.entry.get("fieldsV1") or {}))
        return self._paths

    def lose(self, paths: set[Path]) -> None:
        """Own these no longer."""
        held = self.entry.get("fieldsV1") or {}
        if self._paths is not None or any(_touches(held, path) for path in paths):
            self.paths.difference_update(paths)

    def document(self) -> Doc | None:
        """The entry, or None where it owns nothing."""
        if self._paths is None:
            return self.entry
        if not self._paths:
            return None
        keys = ("manager", "operation", "apiVersion", "time")
        made = {key: self.entry[key] for key in keys}
        made |= {"fieldsType": "FieldsV1", "fieldsV1": nested(self._paths)}
        return made | ({"subresource": self.entry["subresource"]} if self.entry.get("subresource") else {})


def _touches(fields: Doc, path: Path) -> bool:
    return path[0] in fields and (len(path) < 2 or not fields[path[0]] or path[1] in fields[path[0]])


class _Owners:
    """The managedFields of one object."""

    def __init__(self, entries: list[Doc]) -> None:
        self.rows = [_Row(dict(entry)) for entry in entries]

    def of(self, manager: str, operation: str, subresource: str) -> _Row | None:
        """The row of one writer."""
        for row in self.rows:
            entry = row.entry
            if (entry["manager"], entry["operation"], entry.get("subresource", "")) == (
                manager,
                operation,
                subresource,
            ):
                return row
        return None

    def others(self, own: _Row | None) -> list[_Row]:
        """The rows of all others."""
        return [row for row in self.rows if row is not own]

    def write(
        self,
        own: _Row | None,
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
        if own is None:
            entry: Doc = {"manager": manager, "operation": operation, "apiVersion": kind.api_version}
            if subresource:
                entry["subresource"] = subresource
            own = _Row(entry)
            self.rows.append(own)
        if moved or own.paths != paths or "time" not in own.entry:
            own.entry["time"] = time
        own.paths.clear()
        own.paths.update(paths)

    def put_into(self, metadata: Doc) -> None:
        """Write the entries that own anything."""
        if found := [made for row in self.rows if (made := row.document()) is not None]:
            metadata["managedFields"] = found
        else:
            metadata.pop("managedFields", None)


def track_update(kind: Kind, old: Doc | None, new: Doc, *, manager: str, subresource: str, time: str) -> None:
    """Note, in ``new``, that ``manager`` wrote what differs from ``old``: it alone owns that now."""
    if kind.status and not subresource:  # what is written elsewhere is owned elsewhere
        old_part, new_part = _without_status(old), _without_status(new) or new
    else:
        old_part, new_part = old, new
    before = leaves(old_part, new_part) if old_part else {}
    after = leaves(new_part, old_part)
    metadata = new["metadata"]
    known = (old or {}).get("metadata", {}).get("managedFields") or []
    changed = {path for path, value in after.items() if before.get(path, _MISSING) != value}
    gone = before.keys() - after.keys()
    if not changed and not gone:
        if known:
            metadata["managedFields"] = known
        return
    owners = _Owners(known)
    own = owners.of(manager, "Update", subresource)
    for row in owners.others(own):
        row.lose(changed | gone)
    held = (own.paths - gone if own else set()) | changed
    owners.write(
        own,
        held,
        kind=kind,
        manager=manager,
        operation="Update",
        subresource=subresource,
        time=time,
        moved=bool(changed),
    )
    owners.put_into(metadata)


def _without_status(doc: Doc | None) -> Doc | None:
    return doc and {key: value for key, value in doc.items() if key != "status"}


def apply(
    kind: Kind, old: Doc | None, wanted: Doc, *, manager: str, force: bool, subresource: str, time: str
) -> Doc:
    """Server-side apply: the document that ``wanted`` makes of ``old``, managedFields included.

    Raises ApiProblem 409 with every conflict.
    """
    live: Doc = thaw(old) if old else {}
    fields = leaves(wanted)
    owners = _Owners(live.get("metadata", {}).get("managedFields") or [])
    own = owners.of(manager, "Apply", subresource)
    others = owners.others(own)
    there = leaves(live) if live else {}
    differs = {path for path, value in fields.items() if there.get(path, _MISSING) not in (_MISSING, value)}
    if not force:
        _refuse_conflicts(differs, others)
    for row in others:
        row.lose(differs)
    named = [set(fields), *(row.paths for row in others)]
    left = {path for path in (own.paths if own else ()) if not any(_holds(path, paths) for paths in named)}
    # Entries of lists last: a field of an entry that goes altogether is gone with it.
    for path in sorted(left, key=lambda each: (each[-1] == ".", each)):
        take_away(live, path)
    merged: Doc = merge("", live, {key: value for key, value in wanted.items() if key != "metadata"})
    merged["metadata"] = merge("", live.get("metadata", {}), _given(wanted["metadata"]))
    owners.write(
        own,
        set(fields),
        kind=kind,
        manager=manager,
        operation="Apply",
        subresource=subresource,
        time=time,
        moved=bool(differs or left),
    )
    owners.put_into(merged["metadata"])
    return merged


def _given(metadata: Doc) -> Doc:
    return {
        key: value for key, value in metadata.items() if key not in ("managedFields", "creationTimestamp")
    }


def _holds(path: Path, paths: set[Path]) -> bool:
    """Whether somebody names a field, or something in it: of the map or list entry that the path stands for."""
    start = path[:-1] if path[-1] == "." else path
    return path in paths or any(each[: len(start)] == start for each in paths)


def _refuse_conflicts(differs: set[Path], others: list[_Row]) -> None:
    causes = []
    for row in others:
        entry = row.entry
        using = f'conflict with "{entry["manager"]}"'
        if entry.get("subresource"):
            using += f' with subresource "{entry["subresource"]}"'
        using += f" using {entry['apiVersion']}"
        for path in sorted(differs & row.paths):
            causes.append({"reason": "FieldManagerConflict", "message": using, "field": written(path)})
    if not causes:
        return
    number = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    listed = ", ".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    raise ApiProblem(409, "Conflict", f"Apply failed with {number}: {listed}", {"causes": causes})
