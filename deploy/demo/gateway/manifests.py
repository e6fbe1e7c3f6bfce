"""Documents of Gateway API for this gateway: class, gateway, routes with and without header guard, rights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploy.demo.gateway.names import CONTROLLER, FAIRNESS, GATEWAY_GROUP, GUARDED, OBJECTIVE, POOL_GROUP

Doc = dict[str, Any]

CLASS = "lockstep-demo"
_VERSION = f"{GATEWAY_GROUP}/v1"
_RBAC = "rbac.authorization.k8s.io"


def gateway_class(name: str = CLASS) -> Doc:
    """The GatewayClass that this controller answers for."""
    return {
        "apiVersion": _VERSION,
        "kind": "GatewayClass",
        "metadata": {"name": name},
        "spec": {"controllerName": CONTROLLER},
    }


def gateway(name: str, namespace: str, *, port: int = 80, class_name: str = CLASS) -> Doc:
    """A Gateway with one HTTP listener that takes routes from every namespace.

    ``port`` is what the document says; where the gateway really listens is chosen on its command line.
    """
    listener = {
        "name": "http",
        "protocol": "HTTP",
        "port": port,
        "allowedRoutes": {"namespaces": {"from": "All"}},
    }
    return {
        "apiVersion": _VERSION,
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"gatewayClassName": class_name, "listeners": [listener]},
    }


def header_guard(*, objective: str = "", fairness: str = "") -> Doc:
    """The filter of a rule that keeps clients from pinning a revision, taking a priority or naming a tenant.

    All names are removed; a given objective or fairness id is stamped on every request instead.
    """
    stamped = {OBJECTIVE: objective, FAIRNESS: fairness}
    stamps = [{"name": name, "value": value} for name, value in stamped.items() if value]
    kept = {stamp["name"] for stamp in stamps}
    modifier: Doc = {"remove": [name for name in GUARDED if name not in kept]}
    if stamps:
        modifier["set"] = stamps
    return {"type": "RequestHeaderModifier", "requestHeaderModifier": modifier}


def pool_backend(pool: str, *, weight: int = 1) -> Doc:
    """A backendRef to an InferencePool in the route's namespace."""
    return {"group": POOL_GROUP, "kind": "InferencePool", "name": pool, "weight": weight}


def http_route(
    name: str,
    namespace: str,
    *,
    gateway: str,
    gateway_namespace: str,
    pools: Mapping[str, int],
    guard: bool = True,
    objective: str = "",
    fairness: str = "",
    path: str = "/",
    headers: Mapping[str, str] | None = None,
) -> Doc:
    """An HTTPRoute with one rule: a path prefix, pools by name with their weights, and the header guard or none.

    ``headers`` are those that a request must have besides, by name.
    """
    match: Doc = {"path": {"type": "PathPrefix", "value": path}}
    if headers:
        match["headers"] = [{"name": name, "value": value} for name, value in headers.items()]
    rule: Doc = {
        "matches": [match],
        "backendRefs": [pool_backend(pool, weight=weight) for pool, weight in pools.items()],
    }
    if guard:
        rule["filters"] = [header_guard(objective=objective, fairness=fairness)]
    return {
        "apiVersion": _VERSION,
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [{"name": gateway, "namespace": gateway_namespace}], "rules": [rule]},
    }


def rights(namespace: str, account: str, *, name: str = "lockstep-demo-gateway") -> list[Doc]:
    """ClusterRole and binding with exactly what the controller reads and writes, for one service account."""
    gateway_kinds = ["gatewayclasses", "gateways", "httproutes"]
    look = ["get", "list", "watch"]
    rules = [
        {"apiGroups": [GATEWAY_GROUP], "resources": gateway_kinds, "verbs": look},
        {
            "apiGroups": [GATEWAY_GROUP],
            "resources": [f"{kind}/status" for kind in gateway_kinds],
            "verbs": ["patch"],
        },
        {"apiGroups": [POOL_GROUP], "resources": ["inferencepools"], "verbs": look},
        {"apiGroups": [POOL_GROUP], "resources": ["inferencepools/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["services", "pods"], "verbs": look},
    ]
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        },
    ]
