"""Relabelling of targets, by the rules of a scrape configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.demo.metrics.patterns import BadPattern, compile_pattern, expand

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_KEYS = {"source_labels", "separator", "regex", "target_label", "replacement", "action"}
_ACTIONS = ("replace", "keep", "drop")


@dataclass(frozen=True, slots=True)
class Rule:
    """One step: the values of ``sources``, joined, are matched; what it then does is its ``action``."""

    sources: tuple[str, ...]
    separator: str
    pattern: re.Pattern[str]
    target: str
    replacement: str
    action: str

    def apply(self, labels: dict[str, str]) -> bool:
        """Change the labels; False where they are not kept."""
        found = self.pattern.fullmatch(self.separator.join(labels.get(name, "") for name in self.sources))
        if self.action != "replace":
            return (found is not None) is (self.action == "keep")
        if found is not None and _NAME.fullmatch(target := expand(self.target, found)):
            labels[target] = expand(self.replacement, found)
            if not labels[target]:
                del labels[target]
        return True


def read_rules(documents: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """The rules of `relabel_configs`. Raises ValueError for what is not known here."""
    return tuple(_rule(document) for document in documents)


def _rule(document: Mapping[str, Any]) -> Rule:
    if unknown := document.keys() - _KEYS:
        raise ValueError(f"a relabelling rule has {sorted(unknown)[0]!r}, which is not known here")
    action = str(document.get("action", "replace")).lower()
    if action not in _ACTIONS:
        raise ValueError(f"the relabelling action {action!r} is not known here")
    if action == "replace" and not document.get("target_label"):
        raise ValueError("a relabelling rule that replaces needs a target_label")
    try:
        pattern = compile_pattern(str(document.get("regex", "(.*)")))
    except BadPattern as problem:
        raise ValueError(str(problem)) from None
    return Rule(
        sources=tuple(document.get("source_labels") or ()),
        separator=str(document.get("separator", ";")),
        pattern=pattern,
        target=str(document.get("target_label", "")),
        replacement=str(document.get("replacement", "$1")),
        action=action,
    )


def relabelled(labels: Mapping[str, str], rules: Sequence[Rule]) -> dict[str, str] | None:
    """The labels after all rules, or None where they are dropped."""
    found = {name: value for name, value in labels.items() if value}
    return found if all(rule.apply(found) for rule in rules) else None
