"""What a fresh API server needs to be a cluster, and small questions about it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import urllib3

from deploy.rig import workloads
from deploy.rig.api import Api, ApiError, until
from deploy.rig.identities import Identity

Doc = dict[str, Any]


def furnish(
    client: Api, kinds: Sequence[Doc], namespace: Doc, docs: Sequence[Doc], *, limit_s: float
) -> None:
    """Create a namespace, custom resource definitions and other documents; returns when the kinds are served."""
    client.create(namespace)  # before what lies in it
    with ThreadPoolExecutor(8) as workers:
        crds = workers.map(client.apply, kinds)
        list(workers.map(client.create, docs))
        names = [crd[0]["metadata"]["name"] for crd in crds]
    until("CRDs established", lambda: all(_established(client, name) for name in names), limit_s=limit_s)


def _established(client: Api, name: str) -> bool:
    crd = client.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
    conditions = crd.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def cluster_admin(identity: Identity) -> Doc:
    """The binding that makes a user an administrator."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"rig-{identity.name}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": identity.user}],
    }


def nodes_ready(client: Api) -> bool:
    """Whether no node keeps pods away because of its own state."""
    nodes = client.items("/api/v1/nodes")
    taints = [taint["key"] for node in nodes for taint in node["spec"].get("taints", [])]
    return not any(key.startswith("node.kubernetes.io/") for key in taints)


def webhooks_answer(client: Api) -> bool:
    """Whether a write to a set gets past its webhook, by a dry run."""
    probe = workloads.disaggregated_set("webhook-probe", "default")
    try:
        client.request("POST", client.collection(probe), probe, query={"dryRun": "All"})
    except ApiError as error:
        if "failed calling webhook" in error.message:
            return False
        raise
    return True


def listens(port: int) -> bool:
    """Whether something accepts connections on a port of 127.0.0.1."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def answers(client: Api, path: str) -> bool:
    """Whether the API server answers a path well."""
    try:
        client.request("GET", path)
    except (ApiError, urllib3.exceptions.HTTPError):
        return False
    return True


def says_ok(url: str) -> bool:
    """Whether a URL answers 200."""
    try:
        return urllib3.request("GET", url, timeout=2.0, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False
