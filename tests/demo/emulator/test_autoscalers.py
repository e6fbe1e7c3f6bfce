"""Autoscalers without metrics keep their bounds, through /scale, and say what stood in the way."""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator import Emulator
from deploy.rig import Api, until
from tests.cluster.programs import deployment

Doc = dict[str, Any]


def autoscaler(namespace: str, **spec: Any) -> Doc:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "app"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "namespace": namespace},
        "spec": {"scaleTargetRef": target, "maxReplicas": 5, **spec},
    }


def replicas(client: Api, namespace: str) -> int:
    found: int = client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/app")["spec"]["replicas"]
    return found


def condition(client: Api, where: str, name: str) -> Doc:
    found = client.get(where)["status"].get("conditions", [])
    return next((each for each in found if each["type"] == name), {"status": "", "reason": ""})


def test_it_scales_into_its_bounds_and_says_so(client: Api, namespace: str) -> None:
    client.create(deployment(namespace))
    where = client.path(client.create(autoscaler(namespace, minReplicas=3)))
    until("three replicas", lambda: replicas(client, namespace) == 3)
    events = until("an event", lambda: client.items(f"/api/v1/namespaces/{namespace}/events"))
    assert events[0]["reason"] == "SuccessfulRescale" and "New size: 3" in events[0]["message"]
    assert events[0]["involvedObject"]["name"] == "h"
    client.patch(where, {"spec": {"minReplicas": 1, "maxReplicas": 2}})
    until("two replicas", lambda: replicas(client, namespace) == 2)
    until("its status", lambda: client.get(where)["status"]["desiredReplicas"] == 2)
    assert condition(client, where, "ScalingActive")["reason"] == "FailedGetResourceMetric"


def test_what_is_at_zero_or_within_bounds_is_left_alone(client: Api, namespace: str) -> None:
    body = deployment(namespace)
    body["spec"]["replicas"] = 0
    client.create(body)
    where = client.path(client.create(autoscaler(namespace, minReplicas=3)))
    until("looked at", lambda: condition(client, where, "AbleToScale")["status"] == "True")
    assert replicas(client, namespace) == 0


def test_a_refusal_is_told_in_an_event(emulator: Emulator, client: Api, namespace: str) -> None:
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["deployments/scale"],
    }
    match = {
        "resourceRules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    group = "admissionregistration.k8s.io/v1"
    head = {"apiVersion": group, "metadata": {"name": f"no-scaling-{namespace}"}}
    spec = {"matchConstraints": match, "validations": [{"expression": "false", "message": "not now"}]}
    bound = {"policyName": f"no-scaling-{namespace}", "validationActions": ["Deny"]}
    client.apply(
        [
            {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
            {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
        ]
    )
    client.create(deployment(namespace))
    where = client.path(client.create(autoscaler(namespace, minReplicas=3)))
    events = until("an event", lambda: client.items(f"/api/v1/namespaces/{namespace}/events"))
    assert events[0]["reason"] == "FailedRescale" and "not now" in events[0]["message"]
    until("its condition", lambda: condition(client, where, "AbleToScale")["reason"] == "FailedUpdateScale")
    assert replicas(client, namespace) == 1
