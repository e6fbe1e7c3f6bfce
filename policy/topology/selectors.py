"""Label selectors, node selectors, taints and tolerations, matched as the scheduler matches them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Effects that keep a pod away; PreferNoSchedule only lowers a score.
REPELLING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a selector: In, NotIn, Exists, DoesNotExist, Gt or Lt on one key."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy it; NotIn and DoesNotExist hold where the key is absent."""
        has = self.key in labels
        if self.operator == "In":
            return has and labels[self.key] in self.values
        if self.operator == "NotIn":
            return not has or labels[self.key] not in self.values
        if self.operator == "Exists":
            return has
        if self.operator == "DoesNotExist":
            return not has
        return has and self._compares(labels[self.key])

    def _compares(self, text: str) -> bool:
        try:
            have, limit = int(text), int(self.values[0])
        except (ValueError, IndexError):
            return False
        return (self.operator == "Gt" and have > limit) or (self.operator == "Lt" and have < limit)


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One term of a required node affinity: label and field expressions, all of which must hold."""

    expressions: tuple[Requirement, ...]
    fields: tuple[Requirement, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node satisfies it. A term without any expression selects nothing."""
        if not self.expressions and not self.fields:
            return False
        here = {"metadata.name": name}
        return all(r.matches(labels) for r in self.expressions) and all(r.matches(here) for r in self.fields)


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod; an empty key with Exists tolerates everything, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Rules of core/v1 ToleratesTaint without the comparison operators, which are off by default."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("", "Equal") and self.value == taint.value


def first_untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint that keeps the pod off the node, or None."""
    known = tuple(tolerations)
    for taint in taints:
        if taint.effect in REPELLING and not any(t.tolerates(taint) for t in known):
            return taint
    return None


def all_match(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy every requirement; no requirement at all matches everything."""
    return all(requirement.matches(labels) for requirement in requirements)
