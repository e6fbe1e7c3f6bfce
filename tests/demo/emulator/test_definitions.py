"""Kinds of one's own, by a definition, and those that the emulator defines itself."""

from __future__ import annotations

from typing import Any

from deploy.rig import Api
from tests.demo.emulator.calls import refused

Doc = dict[str, Any]


def test_a_definition_serves_its_kind_at_once_and_takes_its_objects_along(
    client: Api, namespace: str
) -> None:
    fields = {"size": {"type": "integer", "default": 3, "maximum": 9}}
    spec = {
        "type": "object",
        "properties": fields,
        "x-kubernetes-validations": [{"rule": "self.size >= oldSelf.size", "message": "never smaller"}],
    }
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    made = client.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [{**version, "subresources": {"status": {}}}],
            },
        }
    )
    assert {each["type"] for each in made["status"]["conditions"]} == {"Established", "NamesAccepted"}
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "t", "namespace": namespace},
    }
    thing = client.create({**body, "spec": {"other": 1}})
    assert thing["spec"] == {"size": 3}, "defaulted, and what the schema does not know is dropped"
    assert client.patch(client.path(thing), {"spec": {"size": 5}})["metadata"]["generation"] == 2
    assert "never smaller" in refused(lambda: client.patch(client.path(thing), {"spec": {"size": 4}})).message
    assert refused(lambda: client.patch(client.path(thing), {"spec": {"size": 10}})).status == 422
    client.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com")
    assert refused(lambda: client.get(f"/apis/example.com/v1/namespaces/{namespace}/things/t")).status == 404
    assert refused(lambda: client.get("/apis/example.com")).status == 404


def test_what_the_path_kinds_fill_in(client: Api, namespace: str) -> None:
    group = "gateway.networking.k8s.io/v1"
    backend = {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "chat"}
    spec = {"parentRefs": [{"name": "front"}], "rules": [{"backendRefs": [backend]}]}
    metadata = {"name": "r", "namespace": namespace}
    route = client.create({"apiVersion": group, "kind": "HTTPRoute", "metadata": metadata, "spec": spec})
    assert route["spec"]["rules"] == [
        {
            "backendRefs": [{**backend, "weight": 1}],
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        }
    ]
    assert route["spec"]["parentRefs"] == [
        {"name": "front", "group": "gateway.networking.k8s.io", "kind": "Gateway"}
    ]
    objective = client.create(
        {
            "apiVersion": "llm-d.ai/v1alpha2",
            "kind": "InferenceObjective",
            "metadata": {"name": "o", "namespace": namespace},
            "spec": {"priority": 5, "poolRef": {"name": "chat"}},
        }
    )
    assert objective["spec"]["poolRef"] == {
        "group": "inference.networking.k8s.io",
        "kind": "InferencePool",
        "name": "chat",
    }
    assert objective["status"]["conditions"][0]["status"] == "Unknown", "nobody has answered"
