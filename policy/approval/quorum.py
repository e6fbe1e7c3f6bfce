"""How many votes a risk class needs, and whether the people who approved fill its slots.

A slot asks for one person with a role, possibly from a named group. A person fills at most one slot, and
people are matched to slots by assignment, not in the order they came: somebody who could fill two slots must
not occupy the only one that a later voter could have filled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policy.approval.risk import HIGH, LOW, MEDIUM, Level

APPROVER = "approver"


@dataclass(frozen=True, slots=True)
class Slot:
    """One vote that is needed: from somebody with `role`, and in `group` where that is set."""

    role: str
    group: str | None = None

    def describe(self) -> str:
        """The slot in words, for a page or a refusal."""
        return f"{self.role} from {self.group}" if self.group else self.role


@dataclass(frozen=True, slots=True)
class Approver:
    """A person whose approval counts, with the roles held in the scope of the request and all groups."""

    person: str
    roles: frozenset[str]
    groups: frozenset[str] = frozenset()

    def fills(self, slot: Slot) -> bool:
        """Whether this person alone could be the one in that slot."""
        return slot.role in self.roles and (slot.group is None or slot.group in self.groups)


@dataclass(frozen=True, slots=True)
class Match:
    """The best assignment of people to slots: `filled` maps slot index to person, `missing` is the rest."""

    filled: Mapping[int, str]
    missing: tuple[Slot, ...]

    @property
    def complete(self) -> bool:
        """True when no slot is left, which is also so when none was asked for."""
        return not self.missing


def slots_for(level: Level, *, owners: str | None = None) -> tuple[Slot, ...]:
    """Slots of a risk class: low none, medium one approver, high two, one of them from the owners' group.

    Without an owners' group both votes of a high risk come from any two approvers.
    """
    return {
        LOW: (),
        MEDIUM: (Slot(APPROVER),),
        HIGH: (Slot(APPROVER, owners), Slot(APPROVER)),
    }[level]


def match_slots(slots: Sequence[Slot], approvers: Sequence[Approver]) -> Match:
    """Fill as many slots as possible, one person each (maximum bipartite matching by augmenting paths).

    A person listed twice counts once. How many slots are missing does not depend on the order of approvers;
    which one is named missing, where several could be, follows the order of slots.
    """
    people = {approver.person: approver for approver in approvers}
    holder: dict[int, str] = {}
    for person in people:
        _seat(person, people, slots, holder, set())
    missing = tuple(slot for index, slot in enumerate(slots) if index not in holder)
    return Match(filled=dict(sorted(holder.items())), missing=missing)


def tightened(before: Sequence[Slot], after: Sequence[Slot]) -> tuple[Slot, ...]:
    """Slots of `after` that a full set of votes for `before` does not guarantee; empty if nothing got harder.

    An old slot guarantees a new one with the same role and the same group or none.
    """
    guarantees = [
        Approver(str(i), frozenset({slot.role}), frozenset({slot.group} if slot.group else ()))
        for i, slot in enumerate(before)
    ]
    return match_slots(after, guarantees).missing


def _seat(
    person: str,
    people: Mapping[str, Approver],
    slots: Sequence[Slot],
    holder: dict[int, str],
    tried: set[int],
) -> bool:
    """Give the person a slot, moving others to slots of their own where that frees one."""
    for index, slot in enumerate(slots):
        if index in tried or not people[person].fills(slot):
            continue
        tried.add(index)
        if index not in holder or _seat(holder[index], people, slots, holder, tried):
            holder[index] = person
            return True
    return False
