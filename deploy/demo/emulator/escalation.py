"""Nobody gives rights away that he does not have: roles and bindings are judged by the rights of their writer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deploy.demo.emulator.problems import forbidden
from deploy.demo.emulator.requests import Write
from deploy.demo.emulator.rights import Rights
from deploy.demo.emulator.store import Store

Doc = dict[str, Any]
_RBAC = "rbac.authorization.k8s.io"


class Escalation:
    """For a writer with the verb ``escalate`` on roles, or ``bind`` on the role of a binding, nothing is asked."""

    def __init__(self, store: Store, rights: Rights) -> None:
        self._store = store
        self._rights = rights

    def check(self, write: Write) -> None:
        """Raise ApiProblem 403 for rights that the writer does not hold."""
        doc = write.object
        if write.kind.group != _RBAC or doc is None:
            return
        space = write.namespace
        if "roleRef" in doc:
            if write.old is not None and write.old.get("subjects") == doc.get("subjects"):
                return
            ref = doc["roleRef"]
            plural = "clusterroles" if ref["kind"] == "ClusterRole" else "roles"
            if self._rights.may(write.user, "bind", _RBAC, plural, "", space, ref["name"]):
                return
            found = self._store.find(
                f"{plural}.{_RBAC}", "" if plural == "clusterroles" else space, ref["name"]
            )
            rules = (found or {}).get("rules") or []
        else:
            if write.old is not None and write.old.get("rules") == doc.get("rules"):
                return
            if self._rights.may(write.user, "escalate", _RBAC, write.kind.plural, "", space, write.name):
                return
            rules = doc.get("rules") or []
        missing = [_written(rule) for rule in rules if not self._holds(write, rule, space)]
        if missing:
            groups = ", ".join(f'"{each}"' for each in write.user.all_groups)
            why = (
                f'user "{write.user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently '
                "held:\n" + "\n".join(missing)
            )
            raise forbidden(write.kind, write.name, why)

    def _holds(self, write: Write, rule: Doc, space: str) -> bool:
        rights, user = self._rights, write.user
        paths = rule.get("nonResourceURLs") or ()
        return all(rights.may(user, *asked[:4], space, asked[4]) for asked in _single(rule)) and all(
            rights.may_open(user, verb, path) for path in paths for verb in rule.get("verbs") or ()
        )


def _single(rule: Doc) -> Iterator[tuple[str, str, str, str, str]]:
    for verb in rule.get("verbs") or ():
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for name in rule.get("resourceNames") or ("",):
                    plural, _, below = resource.partition("/")
                    yield verb, group, plural, below, name


def _written(rule: Doc) -> str:
    keys = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    )
    parts = [
        f"{title}:[{', '.join(chr(34) + each + chr(34) for each in rule[key])}]"
        for title, key in keys
        if rule.get(key)
    ]
    return "{" + ", ".join(parts) + "}"
