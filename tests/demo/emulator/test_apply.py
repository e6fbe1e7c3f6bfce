"""Server-side apply: who owns what, conflicts, and what an applier takes away."""

from __future__ import annotations

from typing import Any

from deploy.rig import Api, workloads
from deploy.rig.api import APPLY
from tests.demo.emulator.calls import config, path, refused

Doc = dict[str, Any]


def apply(client: Api, doc: Doc, manager: str, *, force: bool = False) -> Doc:
    query = {"fieldManager": manager, "force": str(force).lower()}
    return client.request("PATCH", client.path(doc), doc, content_type=APPLY, query=query)


def test_an_applier_owns_what_it_applies_and_takes_away_what_it_drops(client: Api, namespace: str) -> None:
    apply(client, config(namespace, a="1", b="2"), "one")
    assert apply(client, config(namespace, a="1"), "one")["data"] == {"a": "1"}
    apply(client, config(namespace, a="1", c="3"), "two")
    left = apply(client, config(namespace), "one")
    assert left["data"] == {"a": "1", "c": "3"}, "the other one owns it too"
    entries = {each["manager"]: each for each in left["metadata"]["managedFields"]}
    assert entries["two"]["operation"] == "Apply"
    assert entries["two"]["fieldsV1"] == {"f:data": {"f:a": {}, "f:c": {}}}


def test_what_somebody_else_owns_is_a_conflict_unless_forced(client: Api, namespace: str) -> None:
    apply(client, config(namespace, a="1"), "one")
    error = refused(lambda: apply(client, config(namespace, a="2"), "two"))
    assert (error.status, error.reason) == (409, "Conflict")
    assert error.message == 'Apply failed with 1 conflict: conflict with "one" using v1: .data.a'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "one" using v1', "field": ".data.a"}
    assert error.body["details"]["causes"] == [cause]
    assert apply(client, config(namespace, a="2"), "two", force=True)["data"] == {"a": "2"}
    assert apply(client, config(namespace), "one")["data"] == {"a": "2"}, "it has lost the field"


def test_an_update_takes_a_field_over_and_its_writer_is_named(client: Api, namespace: str) -> None:
    apply(client, config(namespace, a="1"), "one")
    query = {"fieldManager": "by-hand"}
    stored = client.request(
        "PATCH",
        path(namespace, "c"),
        {"data": {"a": "2"}},
        content_type="application/merge-patch+json",
        query=query,
    )
    entries = {each["manager"]: each for each in stored["metadata"]["managedFields"]}
    assert list(entries) == ["by-hand"] and entries["by-hand"]["operation"] == "Update"
    error = refused(lambda: apply(client, config(namespace, a="3"), "one"))
    assert 'conflict with "by-hand" using v1: .data.a' in error.message


def test_roles_are_owned_by_name(client: Api, namespace: str) -> None:
    apply(client, workloads.disaggregated_set("model", namespace), "owner")
    stored = client.get(workloads.set_path(namespace, "model"))
    stored["spec"]["roles"][1]["spec"]["replicas"] = 5
    query = {"fieldManager": "scaler"}
    client.request("PUT", workloads.set_path(namespace, "model"), stored, query=query)
    again = workloads.disaggregated_set("model", namespace)
    error = refused(lambda: apply(client, again, "owner"))
    assert '.spec.roles[name="decode"].spec.replicas' in error.message
    entries = client.get(workloads.set_path(namespace, "model"))["metadata"]["managedFields"]
    mine = next(each for each in entries if each["manager"] == "scaler")
    decode = mine["fieldsV1"]["f:spec"]["f:roles"]['k:{"name":"decode"}']
    assert decode == {"f:spec": {"f:replicas": {}}}


def test_applying_the_same_again_changes_nothing(client: Api, namespace: str) -> None:
    first = apply(client, config(namespace, a="1"), "one")
    assert apply(client, config(namespace, a="1"), "one") == first


def test_an_apply_needs_a_manager(client: Api, namespace: str) -> None:
    doc = config(namespace)
    error = refused(lambda: client.request("PATCH", client.path(doc), doc, content_type=APPLY))
    assert error.status == 400 and "fieldManager" in error.message
