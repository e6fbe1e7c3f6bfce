"""The box that a hold allows: floors and ceilings per slice, revision and role.

A box is always exactly one planner row per slice. A wider box that is no row can stop the controller inside it
(research/rig.md 3: ceilings 3/1 with floors 4/2 never move again), so nothing here interpolates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from policy.rollout.planner import Row

Key = tuple[str, str, str]  # slice, revision label, role


@dataclass(frozen=True, slots=True)
class Box:
    """Groups that each (slice, revision, role) may not fall below and may not grow above.

    A key without a floor has floor 0, a key without a ceiling has ceiling 0: a revision that nobody named may
    not grow at all.
    """

    floors: Mapping[Key, int] = field(default_factory=dict)
    ceilings: Mapping[Key, int] = field(default_factory=dict)

    def breaches(self, counts: Mapping[Key, int]) -> list[str]:
        """Sentences for every count outside the box; a named revision that is missing counts as 0 groups."""
        found = []
        for key in sorted({*self.floors, *self.ceilings, *counts}):
            count, floor, ceiling = counts.get(key, 0), self.floors.get(key, 0), self.ceilings.get(key, 0)
            if not floor <= count <= ceiling:
                slice_name, revision, role = key
                found.append(
                    f"slice {slice_name}, {role} of {revision}: {count} groups, allowed {floor}..{ceiling}"
                )
        return found

    def as_data(self) -> dict[str, str]:
        """The `floor.…` and `ceil.…` entries of the parameter ConfigMap."""
        data = {f"floor.{'.'.join(key)}": str(count) for key, count in self.floors.items()}
        data.update({f"ceil.{'.'.join(key)}": str(count) for key, count in self.ceilings.items()})
        return data


def box_from_data(data: Mapping[str, str]) -> Box:
    """The box of a parameter ConfigMap's data; entries that are no floor or ceiling are left out.

    Raises ValueError for a count that is no whole number: such a parameter makes the admission policy fail too.
    """
    floors: dict[Key, int] = {}
    ceilings: dict[Key, int] = {}
    for name, value in data.items():
        kind, _, rest = name.partition(".")
        parts = rest.split(".", 2)
        if kind in {"floor", "ceil"} and len(parts) == 3:
            (floors if kind == "floor" else ceilings)[(parts[0], parts[1], parts[2])] = int(value)
    return Box(floors, ceilings)


def forward_box(
    *,
    roles: Sequence[str],
    rows: Sequence[Row],
    slice_rows: Mapping[str, int],
    old: str,
    new: str,
) -> Box:
    """The box of an upgrade from revision `old` to `new` (empty while the label is not known yet).

    `rows` are the executor's rows, start row first; `slice_rows` gives each slice's row index, 0 for a slice that
    waits. The old revision may always grow back to its start: an abort by hand works while the hold stands.
    """
    floors: dict[Key, int] = {}
    ceilings: dict[Key, int] = {}
    for slice_name, index in slice_rows.items():
        for position, role in enumerate(roles):
            start = rows[0].old[position]
            if start:
                floors[(slice_name, old, role)] = rows[index].old[position]
                ceilings[(slice_name, old, role)] = start
            if new:
                ceilings[(slice_name, new, role)] = rows[index].new[position]
    return Box(floors, ceilings)


def abort_box(*, forward: Box, counts: Mapping[Key, int], old: str, goal: Mapping[str, int]) -> Box:
    """The box of the way back: the old revision grows to `goal` (role → groups), everything else only shrinks.

    Floors of the old revision stay where the upgrade left them (never above what stands); other revisions may
    keep what they have and shrink to nothing.
    """
    floors: dict[Key, int] = {}
    ceilings: dict[Key, int] = {}
    for key in {*forward.floors, *forward.ceilings, *counts}:
        slice_name, revision, role = key
        live = counts.get(key, 0)
        if revision == old:
            wanted = goal.get(role, 0)
            floors[key] = min(forward.floors.get(key, 0), live, wanted)
            ceilings[key] = max(wanted, live)
        else:
            ceilings[key] = live
    for slice_name in {key[0] for key in ceilings}:
        for role, wanted in goal.items():
            key = (slice_name, old, role)
            floors.setdefault(key, 0)
            ceilings[key] = max(ceilings.get(key, 0), wanted)
    return Box(floors, ceilings)


def frozen_box(counts: Mapping[Key, int]) -> Box:
    """Stop: every floor and every ceiling is the live count."""
    return Box(dict(counts), dict(counts))
