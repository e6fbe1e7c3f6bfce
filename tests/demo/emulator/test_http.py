"""The verbs over HTTP as a client meets them: what is answered, what is refused, in the server's words."""

from __future__ import annotations

from typing import Any

import pytest
import urllib3

from deploy.demo.emulator import Emulator
from deploy.rig import Api, workloads
from deploy.rig.api import JSON_PATCH, STRATEGIC
from tests.demo.emulator.calls import config, path, refused
from tests.demo.emulator.conftest import add_children

Doc = dict[str, Any]


# --- create, replace, delete


def test_a_created_object_is_answered_with_201_and_taken_names_with_409(client: Api, namespace: str) -> None:
    made = client.create(config(namespace, a="1"))
    assert made["metadata"]["uid"] and made["data"] == {"a": "1"}
    error = refused(lambda: client.create(config(namespace)))
    assert (error.status, error.reason) == (409, "AlreadyExists")
    assert error.message == 'configmaps "c" already exists'
    assert error.body["details"] == {"name": "c", "kind": "configmaps"}


def test_a_body_need_not_say_what_the_path_says(client: Api, namespace: str) -> None:
    made = client.request("POST", path(namespace), {"metadata": {"name": "bare"}, "data": {"a": "b"}})
    assert (made["kind"], made["metadata"]["namespace"]) == ("ConfigMap", namespace)
    wrong = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
    assert refused(lambda: client.request("POST", path(namespace), wrong)).status == 400
    elsewhere = {"metadata": {"name": "x", "namespace": "elsewhere"}}
    assert refused(lambda: client.request("POST", path(namespace), elsewhere)).status == 400


def test_what_is_not_there(client: Api, namespace: str) -> None:
    error = refused(lambda: client.get(path(namespace, "none")))
    assert (error.status, error.reason, error.message) == (404, "NotFound", 'configmaps "none" not found')
    error = refused(lambda: client.get("/apis/nobody.example/v1/things"))
    assert (error.status, error.message) == (404, "the server could not find the requested resource")
    assert "name" not in error.body.get("details", {}), "so that a client can tell a kind from an object"


def test_a_replacement_carries_what_was_read(client: Api, namespace: str) -> None:
    first = client.create(config(namespace, a="1"))
    second = client.replace({**first, "data": {"a": "2"}})
    error = refused(lambda: client.replace({**first, "data": {"a": "3"}}))
    assert (error.status, error.reason) == (409, "Conflict")
    assert "the object has been modified; please apply your changes to the latest version" in error.message
    del second["metadata"]["resourceVersion"]
    assert client.replace({**second, "data": {"a": "4"}})["data"] == {"a": "4"}, "ConfigMaps take it blindly"
    error = refused(lambda: client.replace({**second, "metadata": {**second["metadata"], "uid": "another"}}))
    assert error.status == 409 and "Precondition failed: UID in precondition: another" in error.message


def test_custom_kinds_are_never_replaced_blindly(client: Api, namespace: str) -> None:
    made = client.create(workloads.disaggregated_set("model", namespace))
    del made["metadata"]["resourceVersion"]
    error = refused(lambda: client.replace(made))
    assert error.status == 422 and "metadata.resourceVersion" in error.message


def test_a_deletion_can_be_bound_to_what_was_read(client: Api, namespace: str) -> None:
    made = client.create(config(namespace))
    one = path(namespace, "c")
    for condition in ({"uid": "another"}, {"resourceVersion": "1"}):
        error = refused(
            lambda condition=condition: client.request("DELETE", one, {"preconditions": condition})
        )
        assert error.status == 409 and "precondition" in error.message
    answer = client.request("DELETE", one, {"preconditions": {"uid": made["metadata"]["uid"]}})
    assert answer["kind"] == "Status" and answer["status"] == "Success"
    assert answer["details"] == {"name": "c", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert refused(lambda: client.delete(one)).status == 404


def test_a_collection_is_deleted_by_selector(client: Api, namespace: str) -> None:
    for name in ("a", "b", "c"):
        made = config(namespace, name)
        made["metadata"]["labels"] = {"goes": str(name != "c").lower()}
        client.create(made)
    client.request("DELETE", path(namespace), query={"labelSelector": "goes=true"})
    assert [each["metadata"]["name"] for each in client.items(path(namespace))] == ["c"]


def test_dry_runs_store_nothing_whatever_the_verb(client: Api, namespace: str) -> None:
    made = client.create(config(namespace, a="1"))
    one, dry = path(namespace, "c"), {"dryRun": "All"}
    assert client.request("POST", path(namespace), config(namespace, "d"), query=dry)["metadata"]["uid"]
    assert client.request("PUT", one, {**made, "data": {"a": "2"}}, query=dry)["data"] == {"a": "2"}
    client.request("PATCH", one, {"data": {"a": "3"}}, content_type="application/merge-patch+json", query=dry)
    client.request("DELETE", one, {"dryRun": ["All"]})
    client.request("DELETE", one, query=dry)
    assert [each["metadata"]["name"] for each in client.items(path(namespace))] == ["c"]
    assert client.get(one) == made
    assert refused(lambda: client.request("DELETE", one, query={"dryRun": "Some"})).status == 400


# --- patches


def test_a_merge_patch_takes_away_by_null_and_replaces_lists(client: Api, namespace: str) -> None:
    client.create(config(namespace, a="1", b="2"))
    assert client.patch(path(namespace, "c"), {"data": {"a": None, "c": "3"}})["data"] == {"b": "2", "c": "3"}
    stale = {"metadata": {"resourceVersion": "1"}, "data": {"a": "9"}}
    assert refused(lambda: client.patch(path(namespace, "c"), stale)).status == 409


def test_a_json_patch_applies_whole_or_not_at_all(client: Api, namespace: str) -> None:
    client.create(config(namespace, a="1"))
    one = path(namespace, "c")
    steps = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/data/x~1y", "value": "2"},
        {"op": "move", "from": "/data/a", "path": "/data/b"},
    ]
    assert client.patch(one, steps, content_type=JSON_PATCH)["data"] == {"x/y": "2", "b": "1"}
    failing = [
        {"op": "add", "path": "/data/z", "value": "1"},
        {"op": "test", "path": "/data/b", "value": "?"},
    ]
    assert refused(lambda: client.patch(one, failing, content_type=JSON_PATCH)).status == 422
    assert "z" not in client.get(one)["data"]


def test_a_strategic_patch_merges_containers_by_name_in_built_in_kinds(client: Api, namespace: str) -> None:
    containers = [{"name": name, "image": "i:1", "env": [{"name": "A", "value": "1"}]} for name in ("x", "y")]
    metadata = {"name": "p", "namespace": namespace}
    client.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
    )
    one = path(namespace, "p", "pods")
    patched = client.patch(
        one, {"spec": {"containers": [{"name": "y", "image": "i:2"}]}}, content_type=STRATEGIC
    )
    assert [each["image"] for each in patched["spec"]["containers"]] == ["i:1", "i:2"]
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Mine", "status": "True"}]
    client.patch(f"{one}/status", {"status": {"conditions": conditions}}, content_type=STRATEGIC)
    less = {
        "status": {"conditions": [{"type": "Mine", "$patch": "delete"}, {"type": "Ready", "status": "False"}]}
    }
    left = client.patch(f"{one}/status", less, content_type=STRATEGIC)["status"]["conditions"]
    assert left == [{"type": "Ready", "status": "False"}]
    client.create(workloads.disaggregated_set("model", namespace))
    error = refused(
        lambda: client.patch(workloads.set_path(namespace, "model"), {"spec": {}}, content_type=STRATEGIC)
    )
    assert (error.status, error.reason) == (415, "UnsupportedMediaType")


def test_status_and_scale_are_paths_of_their_own(client: Api, namespace: str) -> None:
    client.create(workloads.disaggregated_set("model", namespace))
    revision = add_children(client, namespace)
    one = f"/apis/{workloads.LWS_GROUP}/namespaces/{namespace}/leaderworkersets/model-{revision}-prefill"
    stored = client.patch(f"{one}/status", {"status": {"replicas": 4}, "spec": {"replicas": 9}})
    assert (stored["status"], stored["spec"]["replicas"]) == ({"replicas": 4}, 4)
    generation = stored["metadata"]["generation"]
    assert client.patch(one, {"status": {"replicas": 7}})["status"] == {"replicas": 4}
    scale = client.get(f"{one}/scale")
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 4}, {"replicas": 4})
    scale["spec"]["replicas"] = 6
    assert client.request("PUT", f"{one}/scale", scale)["spec"] == {"replicas": 6}
    assert refused(lambda: client.request("PUT", f"{one}/scale", scale)).status == 409
    stored = client.get(one)
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (6, generation + 1)
    assert refused(lambda: client.get(f"{workloads.set_path(namespace, 'model')}/scale")).status == 404


# --- lists


def test_pages_are_of_one_moment(client: Api, namespace: str) -> None:
    for index in range(7):
        client.create(config(namespace, f"c{index}"))
    first = client.request("GET", path(namespace), query={"limit": "3"})
    assert (
        len(first["items"]) == 3
        and first["metadata"]["remainingItemCount"] == len(client.items(path(namespace))) - 3
    )
    client.delete(path(namespace, "c4"))
    client.create(config(namespace, "c9"))
    names = [each["metadata"]["name"] for each in first["items"]]
    token = first["metadata"]["continue"]
    while token:
        page = client.request("GET", path(namespace), query={"limit": "3", "continue": token})
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        names += [each["metadata"]["name"] for each in page["items"]]
        token = page["metadata"].get("continue")
    assert names == [f"c{index}" for index in range(7)]


def test_a_page_token_can_be_too_old(emulator: Emulator, client: Api, namespace: str) -> None:
    for index in range(3):
        client.create(config(namespace, f"c{index}"))
    token = client.request("GET", path(namespace), query={"limit": "1"})["metadata"]["continue"]
    emulator.forget_history()
    error = refused(lambda: client.request("GET", path(namespace), query={"limit": "1", "continue": token}))
    assert (error.status, error.reason) == (410, "Expired")
    assert refused(lambda: client.request("GET", path(namespace), query={"continue": "?"})).status == 400


def test_items_of_built_in_kinds_do_not_repeat_their_kind(client: Api, namespace: str) -> None:
    client.create(config(namespace))
    client.create(workloads.disaggregated_set("model", namespace))
    assert "kind" not in client.items(path(namespace))[0]
    sets = client.request("GET", f"/apis/{workloads.GROUP}/namespaces/{namespace}/disaggregatedsets")
    assert sets["kind"] == "DisaggregatedSetList" and sets["items"][0]["kind"] == "DisaggregatedSet"


def test_fields_that_are_no_index_cannot_be_selected_by(client: Api, namespace: str) -> None:
    query = {"fieldSelector": "data.a=1"}
    error = refused(lambda: client.request("GET", path(namespace), query=query))
    assert error.status == 400 and "field label not supported: data.a" in error.message


# --- the rest of the door


def test_discovery_tells_what_is_served(client: Api) -> None:
    groups = {each["name"] for each in client.get("/apis")["groups"]}
    assert {
        "apps",
        "leaderworkerset.x-k8s.io",
        "authorization.k8s.io",
        "inference.networking.k8s.io",
    } <= groups
    assert refused(lambda: client.get("/apis/nobody.example")).status == 404
    found = {each["name"]: each for each in client.get(f"/apis/{workloads.LWS_GROUP}")["resources"]}
    assert found["leaderworkersets"]["namespaced"] and found["leaderworkersets"]["kind"] == "LeaderWorkerSet"
    assert found["leaderworkersets/scale"]["kind"] == "Scale"
    assert client.get("/version")["gitVersion"].startswith("v1.")
    schemas = client.get(f"/openapi/v3/apis/{workloads.GROUP}")["components"]["schemas"]
    spec = next(iter(schemas.values()))["properties"]["spec"]
    assert "roles" in spec["properties"] and "slices" not in spec["properties"]


def test_older_versions_of_a_kind_are_the_same_objects(client: Api, namespace: str) -> None:
    rules = [{"backendRefs": [{"name": "s", "port": 80}]}]
    kind = "gateway.networking.k8s.io"
    metadata = {"name": "r", "namespace": namespace}
    client.create(
        {"apiVersion": f"{kind}/v1", "kind": "HTTPRoute", "metadata": metadata, "spec": {"rules": rules}}
    )
    older = client.get(f"/apis/{kind}/v1beta1/namespaces/{namespace}/httproutes/r")
    newer = client.get(f"/apis/{kind}/v1/namespaces/{namespace}/httproutes/r")
    assert older == {**newer, "apiVersion": f"{kind}/v1beta1"}


@pytest.mark.parametrize(
    ("method", "where", "status"),
    [
        ("POST", "/api/v1/configmaps", 405),
        ("PUT", "/api/v1/namespaces/default/configmaps", 405),
        ("POST", "/api/v1/namespaces/default/configmaps/x", 405),
        ("GET", "/api/v1/configmaps/x", 404),
        ("GET", "/api/v1/namespaces/default/nodes/x", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/x/status", 404),
        ("GET", "/nowhere", 404),
    ],
)
def test_paths_and_methods_that_make_no_sense(client: Api, method: str, where: str, status: int) -> None:
    body = {"metadata": {"name": "x"}} if method != "GET" else None
    assert refused(lambda: client.request(method, where, body)).status == status


def test_a_body_that_is_no_json_is_a_bad_request(emulator: Emulator, client: Api, namespace: str) -> None:
    answer = client._pool.request(
        "POST", emulator.server + path(namespace), body=b"{", headers=dict(client._pool.headers)
    )
    assert answer.status == 400 and answer.json()["reason"] == "BadRequest"
    assert refused(lambda: client.request("POST", path(namespace, plural="pods"), {"spec": 3})).status in (
        400,
        422,
    )


def test_a_body_in_another_format_is_not_understood(emulator: Emulator, client: Api, namespace: str) -> None:
    url, headers = emulator.server + path(namespace), dict(client._pool.headers)
    answer = client._pool.request(
        "POST", url, body=b"k8s", headers={**headers, "Content-Type": "application/vnd.kubernetes.protobuf"}
    )
    assert answer.status == 415 and "application/json" in answer.json()["message"]
    text = b"metadata: {name: written}\ndata: {a: b}\n"
    answer = client._pool.request(
        "POST", url, body=text, headers={**headers, "Content-Type": "application/yaml"}
    )
    assert answer.status == 201 and answer.json()["data"] == {"a": "b"}


def test_an_unknown_token_is_nobody(emulator: Emulator, client: Api) -> None:
    headers = {"Authorization": "Bearer wrong"}
    answer = client._pool.request("GET", f"{emulator.server}/api/v1/nodes", headers=headers)
    assert answer.status == 401 and answer.json()["reason"] == "Unauthorized"
    for where, status in (("/readyz", 200), ("/api/v1/nodes", 403)):
        answer = client._pool.request("GET", emulator.server + where, headers={})
        assert answer.status == status


def test_it_serves_tls_under_its_own_authority_alone(emulator: Emulator) -> None:
    with pytest.raises(urllib3.exceptions.HTTPError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib3.request("GET", f"{emulator.server}/readyz", retries=False)


def test_empty_parts_of_metadata_are_left_out(client: Api, namespace: str) -> None:
    made = client.create(workloads.disaggregated_set("model", namespace))
    where = client.path(made)
    made["metadata"] |= {"labels": {"a": "b"}, "annotations": {}}
    stored = client.replace(made)
    assert stored["metadata"]["labels"] == {"a": "b"} and "annotations" not in stored["metadata"]
    assert "labels" not in client.patch(where, {"metadata": {"labels": {"a": None}}})["metadata"]


def test_who_writes_an_object_does_not_own_its_status(client: Api, namespace: str) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": "p", "namespace": namespace}
    where = client.path(
        client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    )
    stored = client.patch(f"{where}/status", {"status": {"phase": "Running"}})
    owned = [
        (each.get("subresource"), list(each["fieldsV1"])) for each in stored["metadata"]["managedFields"]
    ]
    assert owned == [(None, ["f:spec"]), ("status", ["f:status"])]


def test_a_status_that_somebody_emptied_does_not_stand_in_the_way(client: Api, namespace: str) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": "p", "namespace": namespace}
    made = client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    where = client.path(made)
    bare = client.request("PUT", f"{where}/status", {**made, "status": {"phase": "Running"}})
    assert bare["status"] == {"phase": "Running"}
    labelled = client.patch(where, {"metadata": {"labels": {"a": "b"}}})
    assert labelled["status"] == {"phase": "Running", "qosClass": "BestEffort"}
