"""Whether the same bits run again, from image IDs: a tag that moved gives the same template and other bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Verdict: TypeAlias = Literal["same", "same-bits", "same-template", "differs", "cannot-tell"]
Images: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]  # role → container → {image, image_ids}


@dataclass(frozen=True, slots=True)
class Bits:
    """The verdict, and per container why it is not `same-bits`."""

    verdict: Verdict
    what: tuple[str, ...] = ()


def judge_bits(recorded: Images, live: Images, *, same_template: bool) -> Bits:
    """Compare what ran with what runs.

    Templates that differ are `differs`. Else every container of every role has to run exactly the one recorded image
    ID for `same-bits`; an ID that is missing on either side, or more than one, is `cannot-tell` unless another
    container shows that the bits are others.
    """
    if not same_template:
        return Bits("differs", ("the templates are not the recorded ones",))
    moved, unknown = [], []
    for role in sorted({*recorded, *live}):
        then, now = recorded.get(role) or {}, live.get(role) or {}
        for container in sorted({*then, *now}):
            name = f"{role}/{container}"
            before, after = _ids(then.get(container)), _ids(now.get(container))
            if len(before) != 1 or len(after) != 1:
                if before and after and not before & after:
                    moved.append(f"{name} runs {_list(after)}, recorded was {_list(before)}")
                else:
                    unknown.append(f"{name}: {_why(before, after)}")
            elif before != after:
                moved.append(f"{name} runs {_list(after)}, recorded was {_list(before)}")
    if moved:
        return Bits("same-template", (*moved, *unknown))
    if unknown or not recorded:
        return Bits("cannot-tell", tuple(unknown) or ("no image IDs were recorded",))
    return Bits("same-bits")


def _ids(entry: Mapping[str, Any] | None) -> frozenset[str]:
    found = frozenset(str(each) for each in (entry or {}).get("image_ids") or ())
    return frozenset() if "" in found else found


def _why(before: frozenset[str], after: frozenset[str]) -> str:
    if not before:
        return "no image ID was recorded"
    if not after:
        return "no image ID is seen now"
    return f"more than one image ID ({_list(before | after)})"


def _list(ids: frozenset[str]) -> str:
    return ", ".join(sorted(ids))
