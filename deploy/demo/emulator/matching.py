"""Which writes an admission policy or binding is about: resources, operations, names, namespaces and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deploy.demo.emulator.requests import Write
from deploy.demo.emulator.selectors import selector_match
from deploy.demo.emulator.store import Store

Doc = dict[str, Any]
Namespaces = Callable[[str], Doc | None]


def policy_namespaces(store: Store) -> Namespaces:
    """Namespaces by name."""
    return lambda name: store.find("namespaces", "", name) if name else None


class Rules:
    """matchConstraints of a policy, or matchResources of a binding (``optional``: without rules it takes all)."""

    def __init__(self, match: Doc, *, optional: bool = False) -> None:
        self._match = match
        self._optional = optional

    def fit(self, write: Write, namespaces: Namespaces) -> bool:
        """Whether a write is meant."""
        rules = self._match.get("resourceRules") or ()
        if not any(_rule(rule, write) for rule in rules) and not (self._optional and not rules):
            return False
        if any(_rule(rule, write) for rule in self._match.get("excludeResourceRules") or ()):
            return False
        return self._fits_namespace(write, namespaces) and self._fits_object(write)

    def _fits_namespace(self, write: Write, namespaces: Namespaces) -> bool:
        selector = self._match.get("namespaceSelector")
        if not selector:
            return True
        if write.kind.ref == "namespaces":
            return selector_match(selector)(write.object or write.old or {"metadata": {}})
        if not write.namespace:
            return True  # cluster-wide objects are never left out by a selector of namespaces
        return selector_match(selector)(namespaces(write.namespace) or {"metadata": {}})

    def _fits_object(self, write: Write) -> bool:
        selector = self._match.get("objectSelector")
        if not selector:
            return True
        return any(each is not None and selector_match(selector)(each) for each in (write.object, write.old))


def _rule(rule: Doc, write: Write) -> bool:
    names = rule.get("resourceNames")
    return (
        _in(rule["operations"], write.operation)
        and _in(rule["apiGroups"], write.kind.group)
        and (_in(rule["apiVersions"], write.kind.version))
        and _in_resources(rule["resources"], write)
        and (not names or write.name in names)
        and rule.get("scope", "*") in ("*", "Namespaced" if write.kind.namespaced else "Cluster")
    )


def _in(allowed: list[str], value: str) -> bool:
    return "*" in allowed or value in allowed


def _in_resources(allowed: list[str], write: Write) -> bool:
    for each in allowed:
        plural, slash, subresource = each.partition("/")
        if plural in ("*", write.kind.plural) and subresource in (write.subresource, "*" if slash else None):
            return True
    return False
