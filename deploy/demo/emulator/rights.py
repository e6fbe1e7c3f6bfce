"""Rights: who may do what, evaluated from the stored roles and bindings. Who has no rule for it may not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from deploy.demo.emulator.address import Address
from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.requests import User
from deploy.demo.emulator.store import Store

Doc = dict[str, Any]
_RBAC = "rbac.authorization.k8s.io"
_API = f"{_RBAC}/v1"
MASTERS = "system:masters"


class Rights:
    """Roles and bindings of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def check(self, user: User, address: Address) -> None:
        """Raise ApiProblem 403, worded as the real server does, for what the user may not do."""
        if not address.is_resource:
            if not self.may_open(user, address.verb, address.path):
                why = f'forbidden: User "{user.name}" cannot {address.verb} path "{address.path}"'
                raise ApiProblem(403, "Forbidden", why, {})
            return
        asked = (address.group, address.plural, address.subresource)
        if not self.may(user, address.verb, *asked, _space(address), address.name):
            raise refusal(user, address)

    def may(
        self,
        user: User,
        verb: str,
        group: str,
        plural: str,
        subresource: str = "",
        namespace: str = "",
        name: str = "",
    ) -> bool:
        """Whether a rule allows a verb on a resource; ``namespace`` "" asks for all of them."""
        if MASTERS in user.groups:
            return True
        resource = f"{plural}/{subresource}" if subresource else plural
        return any(
            _has(rule.get("verbs"), verb)
            and _has(rule.get("apiGroups"), group)
            and _covers(rule.get("resources") or (), resource, subresource)
            and (not rule.get("resourceNames") or name in rule["resourceNames"])
            for rule in self._rules(user, namespace)
        )

    def may_open(self, user: User, verb: str, path: str) -> bool:
        """Whether a rule allows a path that is no resource."""
        return MASTERS in user.groups or any(
            _has(rule.get("verbs"), verb)
            and any(
                path == url or (url.endswith("*") and path.startswith(url[:-1]))
                for url in rule.get("nonResourceURLs") or ()
            )
            for rule in self._rules(user, "")
        )

    def _rules(self, user: User, namespace: str) -> Iterator[Doc]:
        for binding in self._store.list(f"clusterrolebindings.{_RBAC}"):
            if _binds(binding, user):
                yield from self._of(binding["roleRef"], "")
        if namespace:
            for binding in self._store.list(f"rolebindings.{_RBAC}", namespace):
                if _binds(binding, user, namespace):
                    yield from self._of(binding["roleRef"], namespace)

    def _of(self, ref: Doc, namespace: str) -> Iterable[Doc]:
        if ref["kind"] == "ClusterRole":
            role = self._store.find(f"clusterroles.{_RBAC}", "", ref["name"])
        else:
            role = self._store.find(f"roles.{_RBAC}", namespace, ref["name"])
        return (role or {}).get("rules") or ()


def refusal(user: User, address: Address) -> ApiProblem:
    """The 403 for a resource."""
    resource = f"{address.plural}/{address.subresource}" if address.subresource else address.plural
    qualified = f"{address.plural}.{address.group}" if address.group else address.plural
    subject = f'{qualified} "{address.name}"' if address.name else qualified
    space = _space(address)
    where = f'in the namespace "{space}"' if space else "at the cluster scope"
    why = f'User "{user.name}" cannot {address.verb} resource "{resource}" in API group "{address.group}" {where}'
    details: Doc = {"kind": address.plural}
    if address.name:
        details["name"] = address.name
    if address.group:
        details["group"] = address.group
    return ApiProblem(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def _space(address: Address) -> str:
    """The namespace whose roles count; a namespace itself lies in itself."""
    return address.name if (address.group, address.plural) == ("", "namespaces") else address.namespace


def _has(allowed: Iterable[str] | None, asked: str) -> bool:
    return allowed is not None and ("*" in allowed or asked in allowed)


def _covers(allowed: Iterable[str], resource: str, subresource: str) -> bool:
    return any(each in ("*", resource) or (subresource and each == f"*/{subresource}") for each in allowed)


def _binds(binding: Doc, user: User, namespace: str = "") -> bool:
    for subject in binding.get("subjects") or ():
        match subject["kind"]:
            case "User" if subject["name"] == user.name:
                return True
            case "Group" if subject["name"] in user.all_groups:
                return True
            case "ServiceAccount":
                space = subject.get("namespace") or namespace
                if user.name == f"system:serviceaccount:{space}:{subject['name']}":
                    return True
    return False


def _role(name: str, *rules: Doc) -> Doc:
    return {"apiVersion": _API, "kind": "ClusterRole", "metadata": {"name": name}, "rules": list(rules)}


def binding(name: str, role: str, *subjects: Doc) -> Doc:
    """A ClusterRoleBinding."""
    ref = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}
    metadata = {"name": name}
    return {
        "apiVersion": _API,
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": ref,
        "subjects": list(subjects),
    }


def subject_group(name: str) -> Doc:
    """A group as the subject of a binding."""
    return {"apiGroup": _RBAC, "kind": "Group", "name": name}


def shipped() -> list[Doc]:
    """The roles and bindings that a fresh server has."""
    public = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
    discovery = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *public]
    reviews = {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews"],
        "verbs": ["create"],
    }
    who = {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]}
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    everybody = subject_group("system:authenticated")
    return [
        _role("cluster-admin", everything, {"nonResourceURLs": ["*"], "verbs": ["*"]}),
        _role("system:discovery", {"nonResourceURLs": discovery, "verbs": ["get"]}),
        _role("system:public-info-viewer", {"nonResourceURLs": public, "verbs": ["get"]}),
        _role("system:basic-user", reviews, who),
        binding("cluster-admin", "cluster-admin", subject_group(MASTERS)),
        binding("system:discovery", "system:discovery", everybody),
        binding("system:basic-user", "system:basic-user", everybody),
        binding(
            "system:public-info-viewer",
            "system:public-info-viewer",
            everybody,
            subject_group("system:unauthenticated"),
        ),
    ]
