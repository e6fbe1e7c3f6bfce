"""Deletion: grace, finalizers, dependents in all three ways, namespaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deploy.demo.emulator import Emulator
from deploy.rig import Api, ApiError, until, workloads
from tests.demo.emulator.conftest import add_children

Doc = dict[str, Any]


def refused(call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as found:
        call()
    return found.value


def config(client: Api, namespace: str, name: str, *owners: Doc, block: bool = False, **metadata: Any) -> Doc:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": each["metadata"]["name"],
            "uid": each["metadata"]["uid"],
            "blockOwnerDeletion": block,
        }
        for each in owners
    ]
    head: Doc = {"name": name, "namespace": namespace, **metadata}
    if references:
        head["ownerReferences"] = references
    return client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": head})


def names(client: Api, namespace: str) -> list[str]:
    found = client.items(f"/api/v1/namespaces/{namespace}/configmaps")
    return [each["metadata"]["name"] for each in found]


def delete(client: Api, namespace: str, name: str, **options: Any) -> Doc:
    return client.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/{name}", options)


def test_dependents_follow_their_owner_through_generations(client: Api, namespace: str) -> None:
    top = config(client, namespace, "top")
    middle = config(client, namespace, "middle", top)
    config(client, namespace, "leaf", middle)
    config(client, namespace, "free")
    delete(client, namespace, "top", propagationPolicy="Background")
    until("dependents gone", lambda: names(client, namespace) == ["free"])


def test_what_has_another_owner_stays(client: Api, namespace: str) -> None:
    one, two = config(client, namespace, "one"), config(client, namespace, "two")
    config(client, namespace, "both", one, two)
    delete(client, namespace, "one")
    marker = config(client, namespace, "marker", one)
    until(
        "an orphan from the start is collected",
        lambda: marker["metadata"]["name"] not in names(client, namespace),
    )
    assert names(client, namespace) == ["both", "two"]
    delete(client, namespace, "two")
    until("both gone", lambda: not names(client, namespace))


def test_foreground_waits_for_those_that_block(client: Api, namespace: str) -> None:
    top = config(client, namespace, "top")
    config(client, namespace, "held", top, block=True, finalizers=["example.com/slow"])
    answer = delete(client, namespace, "top", propagationPolicy="Foreground")
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    until(
        "the dependent is marked",
        lambda: client.get(f"/api/v1/namespaces/{namespace}/configmaps/held")["metadata"].get(
            "deletionTimestamp"
        ),
    )
    assert "top" in names(client, namespace)
    client.patch(f"/api/v1/namespaces/{namespace}/configmaps/held", {"metadata": {"finalizers": None}})
    until("all gone", lambda: not names(client, namespace))


def test_orphans_lose_their_owner_and_stay(client: Api, namespace: str) -> None:
    top = config(client, namespace, "top")
    config(client, namespace, "child", top)
    delete(client, namespace, "top", propagationPolicy="Orphan")
    until("top gone", lambda: names(client, namespace) == ["child"])
    child = client.get(f"/api/v1/namespaces/{namespace}/configmaps/child")
    assert "ownerReferences" not in child["metadata"]


def test_a_set_takes_its_children_along(client: Api, namespace: str) -> None:
    client.create(workloads.disaggregated_set("model", namespace))
    add_children(client, namespace)
    assert len(workloads.lws_of(client, namespace, "model")) == 2
    client.delete(workloads.set_path(namespace, "model"))
    until("children gone", lambda: not workloads.lws_of(client, namespace, "model"))


def test_nothing_is_added_to_hold_what_is_going(client: Api, namespace: str) -> None:
    config(client, namespace, "c", finalizers=["example.com/a"])
    delete(client, namespace, "c")
    where = f"/api/v1/namespaces/{namespace}/configmaps/c"
    error = refused(
        lambda: client.patch(where, {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}})
    )
    assert error.status == 422 and "no new finalizers can be added" in error.message
    client.patch(where, {"metadata": {"finalizers": []}})
    assert refused(lambda: client.get(where)).status == 404


def test_a_pod_ends_when_its_kubelet_says_so(client: Api, namespace: str) -> None:
    spec = {
        "nodeName": "gpu-0",
        "terminationGracePeriodSeconds": 60,
        "containers": [{"name": "c", "image": "i"}],
    }
    metadata = {"name": "p", "namespace": namespace}
    where = client.path(
        client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    )
    marked = client.delete(where)
    assert marked["kind"] == "Pod" and marked["metadata"]["deletionGracePeriodSeconds"] == 60
    sooner = client.request("DELETE", where, {"gracePeriodSeconds": 5})
    assert sooner["metadata"]["deletionGracePeriodSeconds"] == 5
    client.request("DELETE", where, {"gracePeriodSeconds": 0})
    assert refused(lambda: client.get(where)).status == 404


def test_an_eviction_is_a_deletion(client: Api, namespace: str) -> None:
    metadata = {"name": "p", "namespace": namespace}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    where = client.path(
        client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    )
    client.request("POST", f"{where}/eviction", {"kind": "Eviction", "metadata": metadata})
    assert refused(lambda: client.get(where)).status == 404


def test_a_namespace_ends_with_everything_in_it(client: Api, namespace: str) -> None:
    config(client, namespace, "c")
    config(client, namespace, "held", finalizers=["example.com/a"])
    client.delete(f"/api/v1/namespaces/{namespace}")
    until("c gone", lambda: names(client, namespace) == ["held"])
    assert client.get(f"/api/v1/namespaces/{namespace}")["status"]["phase"] == "Terminating"
    error = refused(lambda: config(client, namespace, "late"))
    assert error.status == 403
    assert (
        f"unable to create new content in namespace {namespace} because it is being terminated"
        in error.message
    )
    client.patch(f"/api/v1/namespaces/{namespace}/configmaps/held", {"metadata": {"finalizers": None}})
    until(
        "the namespace gone",
        lambda: namespace not in [each["metadata"]["name"] for each in client.items("/api/v1/namespaces")],
    )


def test_a_stopped_collector_catches_up(emulator: Emulator, client: Api, namespace: str) -> None:
    top = config(client, namespace, "top")
    config(client, namespace, "child", top)
    emulator.stop_part("garbage-collector")
    try:
        assert emulator.gone() == "garbage-collector"
        delete(client, namespace, "top")
        assert names(client, namespace) == ["child"]
    finally:
        emulator.start_part("garbage-collector")
    until("child gone", lambda: not names(client, namespace))
    assert emulator.gone() is None
