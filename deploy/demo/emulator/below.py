"""Subresources of their own kind: binding and evicting pods, their logs, tokens of service accounts.

``status`` and ``scale`` are no part of this: they are writes of the object itself (``writes``)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from deploy.demo.emulator.accounts import Accounts
from deploy.demo.emulator.frozen import thaw
from deploy.demo.emulator.problems import bad_request, conflict, no_such_path
from deploy.demo.emulator.requests import User
from deploy.demo.emulator.store import Store
from deploy.demo.emulator.writes import stamp

Doc = dict[str, Any]
# The text of a pod's log: (pod, container name or "", previous) -> text.
Logs = Callable[[Doc, str, bool], str]
OWN = {("pods", "binding"), ("pods", "eviction"), ("pods", "log"), ("serviceaccounts", "token")}


def no_logs(pod: Doc, container: str, previous: bool) -> str:
    """Logs of a cluster in which nothing runs."""
    return ""


def create(
    store: Store,
    accounts: Accounts,
    user: User,
    ref: str,
    subresource: str,
    namespace: str,
    name: str,
    body: Doc,
) -> Doc:
    """POST to one of them. Raises ApiProblem."""
    if subresource == "token":
        store.get(ref, namespace, name)
        expires = store.clock() + timedelta(
            seconds=int((body.get("spec") or {}).get("expirationSeconds") or 3600)
        )
        status = {"token": accounts.issue(namespace, name), "expirationTimestamp": stamp(expires)}
        return {**body, "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "status": status}
    acting = store.acting_as(user)
    if subresource == "binding":
        bind(store, user, namespace, name, str((body.get("target") or {}).get("name", "")))
    elif subresource == "eviction":
        options = body.get("deleteOptions") or {}
        acting.delete(ref, namespace, name, grace_s=options.get("gracePeriodSeconds"))
    else:
        raise no_such_path()
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def bind(store: Store, user: User, namespace: str, name: str, node: str) -> None:
    """Put a pod on a node, as a scheduler does. Raises ApiProblem 409 when it is on one."""
    pods = store.kinds.of("pods")

    def change(old: Doc) -> Doc:
        if old["spec"].get("nodeName"):
            raise conflict(pods, name, f'pod {name} is already assigned to node "{old["spec"]["nodeName"]}"')
        new: Doc = thaw(old)
        new["spec"]["nodeName"] = node
        return new

    store.writes.update(pods, namespace, name, change, user, manager="kube-scheduler", subresource="binding")
    now = stamp(store.clock())
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    old = [
        each
        for each in (store.get(pods, namespace, name).get("status") or {}).get("conditions") or []
        if each["type"] != "PodScheduled"
    ]
    store.acting_as(user).write_status(pods, namespace, name, {"conditions": [*old, condition]})


def log(pod: Doc, query: dict[str, str], logs: Logs) -> str:
    """The text of GET pods/NAME/log. Raises ApiProblem 400 where no container, or none by that name, is meant."""
    names = [each["name"] for each in pod["spec"]["containers"]]
    container = query.get("container", "")
    if container and container not in names:
        raise bad_request(f"container {container} is not valid for pod {pod['metadata']['name']}")
    if not container and len(names) > 1:
        raise bad_request(
            f"a container name must be specified for pod {pod['metadata']['name']}, choose one of: {names}"
        )
    text = logs(pod, container or names[0], query.get("previous") == "true")
    if tail := query.get("tailLines"):
        lines = text.splitlines(keepends=True)
        text = "".join(lines[-int(tail) :] if int(tail) else [])
    return text
