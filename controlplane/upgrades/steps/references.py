"""Whether what parity was compared with may still be relied on by an operation: a revision is no proof of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controlplane.paths.golden import usable_golden

Json = dict[str, Any]


def wrong_references(evidence: Sequence[Json], side: str) -> list[tuple[str, str]]:
    """Sentence and next action for each of these series (entries of `path_evidence`) whose golden outputs prove nothing
    now: nobody vouches for them any more; or they are answers of the new revision itself and no operation has proved
    them. Of the old revision (`side`: old or new) they may be answers: it served before the operation.
    """
    named = [each for each in evidence if each.get("golden")]
    usable = usable_golden({int(each["golden"]["id"]) for each in named}) if named else {}
    found = []
    for each in named:
        golden, revision = int(each["golden"]["id"]), str(each["revision"])
        vouchers = usable.get(golden)
        if vouchers is None:
            found.append(
                (
                    f"Nobody vouches any more for golden outputs {golden}, with which it was compared.",
                    "Record golden outputs of a revision that is known to be good.",
                )
            )
        elif side == "new" and each["golden"]["revision"] == revision and _persons_alone(vouchers):
            found.append(
                (
                    f"Golden outputs {golden} are answers of {revision} itself, for which persons alone vouch: it was "
                    "compared with itself.",
                    f"Revoke golden outputs {golden}, and record those of a revision that is known to be good.",
                )
            )
    return found


def _persons_alone(vouchers: Sequence[Json]) -> bool:
    return all(each.get("kind") == "person" for each in vouchers)
