"""The list of differences is true: each is shown. Whoever mends one takes it off the list and away from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deploy.demo.emulator import Emulator
from deploy.demo.emulator.differences import DIFFERENCES
from deploy.rig import Api, ApiError
from tests.cluster.programs import deployment

Doc = dict[str, Any]
PODS = "/api/v1/namespaces/{}/pods"


class Look:
    """What a check may use."""

    def __init__(self, emulator: Emulator, client: Api, namespace: str) -> None:
        self.emulator, self.client, self.namespace = emulator, client, namespace

    def status(self, path: str, method: str = "GET", body: Doc | None = None) -> int:
        try:
            self.client.request(method, path, body)
        except ApiError as problem:
            return problem.status
        return 200

    def config(self, name: str, **data: str) -> Doc:
        metadata = {"name": name, "namespace": self.namespace}
        return self.client.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        )

    def pod(self, name: str) -> Doc:
        spec = {"containers": [{"name": "c", "image": "i"}]}
        metadata = {"name": name, "namespace": self.namespace, "labels": {"app": "x"}}
        return self.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def versions_of_lists(look: Look) -> bool:
    look.config("c")
    path = f"/api/v1/namespaces/{look.namespace}/configmaps"
    query = {"resourceVersion": "1", "resourceVersionMatch": "Exact"}
    older = look.client.request("GET", path, query=query)
    later = look.client.request("GET", path, query={"resourceVersion": "999999999"})
    return len(older["items"]) == len(later["items"]) == 1


def history(look: Look) -> bool:
    from deploy.demo.emulator.memory import HISTORY

    return HISTORY == 5_000


def formats(look: Look) -> bool:
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    headers = {**look.client._pool.headers, "Accept": table, "Accept-Encoding": "gzip"}
    answer = look.client._pool.request("GET", f"{look.emulator.server}/api/v1/nodes", headers=headers)
    return bool(answer.json()["kind"] == "NodeList" and "Content-Encoding" not in answer.headers)


def openapi(look: Look) -> bool:
    return (
        look.status("/openapi/v2") == 404
        and not look.client.get("/openapi/v3/apis/apps/v1")["components"]["schemas"]
    )


def unknown_fields(look: Look) -> bool:
    doc = deployment(look.namespace)
    doc["spec"]["unknown"] = 1
    made = look.client.request("POST", look.client.collection(doc), doc, query={"fieldValidation": "Strict"})
    return bool(made["spec"]["unknown"] == 1)


def conversion(look: Look) -> bool:
    group = "gateway.networking.k8s.io"
    metadata = {"name": "r", "namespace": look.namespace}
    made = look.client.create(
        {"apiVersion": f"{group}/v1beta1", "kind": "HTTPRoute", "metadata": metadata, "spec": {}}
    )
    newer = look.client.get(f"/apis/{group}/v1/namespaces/{look.namespace}/httproutes/r")
    return bool({**made, "apiVersion": f"{group}/v1"} == newer)


def webhooks(look: Look) -> bool:
    hook = {
        "name": "no.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/no"},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
        ],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    group = "admissionregistration.k8s.io/v1"
    made = {"apiVersion": group, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "no"}}
    stored = look.client.create({**made, "webhooks": [hook]})
    try:
        return bool(look.config("c"))
    finally:
        look.client.delete(look.client.path(stored))


def warnings(look: Look) -> bool:
    group, name = "admissionregistration.k8s.io/v1", f"warns-{look.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}]}
    head = {"apiVersion": group, "metadata": {"name": name}}
    bound = {"policyName": name, "validationActions": ["Warn", "Audit"]}
    look.client.apply(
        [
            {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
            {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
        ]
    )
    answer = look.client._pool.request(
        "POST",
        f"{look.emulator.server}/api/v1/namespaces/{look.namespace}/secrets",
        json={"metadata": {"name": "s"}},
        headers=dict(look.client._pool.headers),
    )
    return answer.status == 201 and "Warning" not in answer.headers


def cel(look: Look) -> bool:
    from deploy.demo.emulator.expressions import EvaluationFailed, Scope

    with pytest.raises(EvaluationFailed):
        Scope({}, {}).value("quantity('1Gi').isGreaterThan(quantity('1Mi'))")
    return True


def impersonation(look: Look) -> bool:
    headers = {**look.client._pool.headers, "Impersonate-User": "nobody"}
    answer = look.client._pool.request("GET", f"{look.emulator.server}/api/v1/nodes", headers=headers)
    return answer.status == 200


def aggregated_roles(look: Look) -> bool:
    return look.status("/apis/rbac.authorization.k8s.io/v1/clusterroles/view") == 404


def fairness(look: Look) -> bool:
    return all(look.status("/api/v1/nodes") == 200 for _ in range(50))


def quotas(look: Look) -> bool:
    metadata = {"name": "q", "namespace": look.namespace}
    hard = {"configmaps": "0"}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
    stored = look.client.create(body)
    look.config("c")
    return "used" not in look.client.get(look.client.path(stored)).get("status", {})


def service_account_tokens(look: Look) -> bool:
    return "volumes" not in look.pod("p")["spec"]


def pod_subresources(look: Look) -> bool:
    look.pod("p")
    group = "policy/v1"
    metadata = {"name": "b", "namespace": look.namespace}
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    look.client.create(
        {"apiVersion": group, "kind": "PodDisruptionBudget", "metadata": metadata, "spec": budget}
    )
    path = PODS.format(look.namespace)
    return (
        look.status(f"{path}/p/exec", "POST", {}) == 404
        and look.status(f"{path}/p/eviction", "POST", {}) == 200
    )


def service_addresses(look: Look) -> bool:
    look.pod("p")
    metadata = {"name": "s", "namespace": look.namespace}
    spec = {"selector": {"app": "x"}, "ports": [{"port": 80}]}
    look.client.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    return not look.client.items(f"/apis/discovery.k8s.io/v1/namespaces/{look.namespace}/endpointslices")


CHECKS: dict[str, Callable[[Look], bool]] = {
    name: globals()[name.replace("-", "_")] for name in (each.name for each in DIFFERENCES)
}


@pytest.mark.parametrize("name", CHECKS)
def test_each_listed_difference_is_one(emulator: Emulator, client: Api, namespace: str, name: str) -> None:
    assert CHECKS[name](Look(emulator, client, namespace)), (
        f"{name} is no difference any more: take it off the list"
    )


def test_nobody_gives_rights_away_that_he_does_not_have(emulator: Emulator, namespace: str) -> None:
    """Not on the list, and often forgotten in emulators."""
    group = "rbac.authorization.k8s.io"
    may = {"apiGroups": [group], "resources": ["roles", "rolebindings"], "verbs": ["create"]}
    read = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    head = {"apiVersion": f"{group}/v1"}
    inside = {"name": "helper", "namespace": namespace}
    ref = {"kind": "Role", "name": "helper"}
    emulator.apply(
        [
            {**head, "kind": "Role", "metadata": inside, "rules": [may, read]},
            {
                **head,
                "kind": "RoleBinding",
                "metadata": inside,
                "roleRef": ref,
                "subjects": [{"kind": "User", "name": "spare"}],
            },
        ]
    )
    spare = emulator.client("spare")
    assert spare.create({**head, "kind": "Role", "metadata": {**inside, "name": "less"}, "rules": [read]})
    more = {**read, "verbs": ["get", "delete"]}
    with pytest.raises(ApiError) as problem:
        spare.create({**head, "kind": "Role", "metadata": {**inside, "name": "more"}, "rules": [more]})
    assert problem.value.status == 403 and "attempting to grant RBAC permissions not currently held" in str(
        problem.value
    )
    binding = {**head, "kind": "RoleBinding", "metadata": {**inside, "name": "admin"}, "subjects": []}
    with pytest.raises(ApiError):
        spare.create({**binding, "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}})
