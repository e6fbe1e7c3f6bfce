"""Questions that are answered and never stored: may I, may they, who am I, whose token is this."""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.accounts import Accounts
from deploy.demo.emulator.problems import bad_request
from deploy.demo.emulator.requests import User
from deploy.demo.emulator.rights import Rights

Doc = dict[str, Any]


def answer(kind: str, doc: Doc, user: User, rights: Rights, accounts: Accounts) -> Doc:
    """The review with its status."""
    spec: Doc = doc.get("spec") or {}
    group = "authentication" if kind in ("SelfSubjectReview", "TokenReview") else "authorization"
    head = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "metadata": {"creationTimestamp": None}}
    if kind == "SelfSubjectReview":
        return {**head, "status": {"userInfo": _info(user)}}
    if kind == "TokenReview":
        found = accounts.find(str(spec.get("token", "")))
        status: Doc = {"authenticated": True, "user": _info(found)} if found else {"authenticated": False}
        return {**head, "spec": spec, "status": status}
    if kind != "SelfSubjectAccessReview":
        user = User(str(spec.get("user", "")), tuple(spec.get("groups") or ()))
    allowed = _may(spec, user, rights)
    return {**head, "spec": spec, "status": {"allowed": allowed, **({} if allowed else {"reason": ""})}}


def _may(spec: Doc, user: User, rights: Rights) -> bool:
    if "nonResourceAttributes" in spec:
        asked = spec["nonResourceAttributes"]
        return rights.may_open(user, asked.get("verb", ""), asked.get("path", ""))
    if "resourceAttributes" not in spec:
        raise bad_request("exactly one of nonResourceAttributes or resourceAttributes must be specified")
    asked = spec["resourceAttributes"]
    keys = ("verb", "group", "resource", "subresource", "namespace", "name")
    return rights.may(user, *(str(asked.get(key) or "") for key in keys))


def _info(user: User) -> Doc:
    return {"username": user.name, "groups": list(user.all_groups)}
