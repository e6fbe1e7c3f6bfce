"""Label selectors in the two spellings of Kubernetes: one line of text, and the matchLabels/matchExpressions object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SET = re.compile(r"^(?P<key>[^\s=!(),]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s=!(),]+)\s*(?P<op>==|!=|=)\s*(?P<value>[^\s=!(),]*)$")
_PRESENT = re.compile(r"^(?P<no>!?)\s*(?P<key>[^\s=!(),]+)$")


@dataclass(frozen=True)
class Requirement:
    """One condition: the label `key` is "in" or "notin" `values`, or "exists", or "absent"."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet the condition. "notin" is met by a pod without the label."""
        if self.operator == "exists":
            return self.key in labels
        if self.operator == "absent":
            return self.key not in labels
        inside = self.key in labels and labels[self.key] in self.values
        return inside if self.operator == "in" else not inside


@dataclass(frozen=True)
class Selector:
    """All of the requirements; without any it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """A selector such as "a=b,c!=d,e in (f,g),!h"; ValueError for other text."""
    parts = [part.strip() for part in re.split(r",(?![^()]*\))", text)]
    if parts == [""]:
        return Selector()
    return Selector(tuple(_requirement(part) for part in parts))


def _requirement(part: str) -> Requirement:
    if found := _SET.match(part):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Requirement(found["key"], found["op"], values)
    if found := _EQUAL.match(part):
        return Requirement(
            found["key"], "notin" if found["op"] == "!=" else "in", frozenset({found["value"]})
        )
    if found := _PRESENT.match(part):
        return Requirement(found["key"], "absent" if found["no"] else "exists")
    raise ValueError(f"unable to parse requirement: {part!r}")


def match_labels(labels: Mapping[str, str]) -> Selector:
    """The selector of a matchLabels object."""
    return Selector(tuple(Requirement(key, "in", frozenset({value})) for key, value in labels.items()))


def from_object(document: Mapping[str, Any]) -> Selector:
    """The selector of a matchLabels/matchExpressions object; ValueError for an operator without its values."""
    found = list(match_labels(document.get("matchLabels") or {}).requirements)
    for one in document.get("matchExpressions") or ():
        operator = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}.get(
            one["operator"]
        )
        values = frozenset(one.get("values") or ())
        if operator is None or bool(values) != (operator in ("in", "notin")):
            raise ValueError(f"{one['operator']!r} is not a valid label selector operator for these values")
        found.append(Requirement(one["key"], operator, values))
    return Selector(tuple(found))
