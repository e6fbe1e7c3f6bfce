"""What a request is about: its path and method as verb, kind, namespace, name and subresource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from deploy.demo.emulator.kinds import Kind, Kinds
from deploy.demo.emulator.problems import ApiProblem, no_such_path, not_allowed

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
# Kinds that are answered and never stored, by group and version.
REVIEWS: Mapping[tuple[str, str], Mapping[str, tuple[str, bool]]] = {
    ("authorization.k8s.io", "v1"): {
        "selfsubjectaccessreviews": ("SelfSubjectAccessReview", False),
        "subjectaccessreviews": ("SubjectAccessReview", False),
        "localsubjectaccessreviews": ("LocalSubjectAccessReview", True),
    },
    ("authentication.k8s.io", "v1"): {
        "selfsubjectreviews": ("SelfSubjectReview", False),
        "tokenreviews": ("TokenReview", False),
    },
}


@dataclass(frozen=True)
class Address:
    """A parsed request. ``kind`` is None for a review (``review`` is its kind then) and for a path that is no
    resource (``path``). ``version`` is the one that the path names. ``problem`` is why it leads nowhere: that is
    told only to those who would have the right to go there."""

    verb: str
    path: str
    kind: Kind | None = None
    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    review: str = ""
    problem: ApiProblem | None = None

    @property
    def is_resource(self) -> bool:
        """Whether rights are asked by resource rather than by path."""
        return bool(self.plural)


def parse(method: str, path: str, query: Mapping[str, str], kinds: Kinds) -> Address:
    """The address of a request. Raises ApiProblem 405 for a method that HTTP has and this API has not."""
    if method not in _VERBS:
        raise not_allowed()
    verb = _VERBS[method]
    parts = [part for part in path.split("/") if part]
    group, rest = _group(parts)
    if len(rest) < 2:
        return Address(verb, path)
    version, *rest = rest
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and not (group == "" and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    found = Address(
        _verb(verb, name, query), path, None, group, version, plural, namespace, name, subresource
    )
    if len(rest) > 3:
        return replace(found, problem=no_such_path())
    if (group, version) in REVIEWS:
        review, _ = REVIEWS[group, version].get(plural, ("", False))
        problem = no_such_path() if not review or name else not_allowed() if verb != "create" else None
        return replace(found, review=review, problem=problem)
    try:
        kind = kinds.at(group, version, plural)
    except ApiProblem as problem:
        return replace(found, problem=problem)
    return replace(found, kind=kind, problem=_senseless(found, kind))


def _senseless(address: Address, kind: Kind) -> ApiProblem | None:
    """Why a path or method makes no sense for a kind, or None."""
    verb, name = address.verb, address.name
    if kind.namespaced and not address.namespace and (name or verb == "create"):
        return no_such_path() if name else not_allowed()
    if not kind.namespaced and address.namespace:
        return no_such_path()
    if (not name and verb in ("update", "patch")) or (name and verb == "create" and not address.subresource):
        return not_allowed()
    return None


def _group(parts: list[str]) -> tuple[str, list[str]]:
    if parts[:1] == ["api"]:
        return "", parts[1:]
    if parts[:1] == ["apis"] and len(parts) > 1:
        return parts[1], parts[2:]
    return "", []


def _verb(verb: str, name: str, query: Mapping[str, str]) -> str:
    if name:
        return verb
    if verb == "get":
        return "watch" if query.get("watch") in ("true", "1") else "list"
    return "deletecollection" if verb == "delete" else verb
