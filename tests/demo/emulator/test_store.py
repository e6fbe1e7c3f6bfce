"""The store as controllers use it: objects, versions, changes, deletion."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deploy.demo.emulator.frozen import thaw
from deploy.demo.emulator.store import Acting, ApiProblem, Store, User

Doc = dict[str, Any]
LWS = "leaderworkersets.leaderworkerset.x-k8s.io"


@pytest.fixture
def acting() -> Acting:
    store = Store(seed=1)
    acting = store.acting_as(User("admin", ("system:masters",)))
    acting.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "here"}})
    return acting


def pod(name: str, **labels: str) -> Doc:
    spec = {"nodeName": "gpu-0", "containers": [{"name": "engine", "image": "engine:v1"}]}
    metadata = {"name": name, "namespace": "here", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def config(name: str, **data: str) -> Doc:
    metadata = {"name": name, "namespace": "here"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def refused(problem: pytest.ExceptionInfo[ApiProblem]) -> tuple[int, str]:
    return problem.value.status, problem.value.reason


def test_a_new_object_gets_what_only_the_server_can_give(acting: Acting) -> None:
    made = acting.create({**pod("ignored"), "metadata": {"generateName": "engine-", "namespace": "here"}})
    metadata = made["metadata"]
    assert metadata["name"].startswith("engine-") and len(metadata["name"]) == 12
    assert len(metadata["uid"]) == 36 and metadata["creationTimestamp"].endswith("Z")
    assert metadata["generation"] == 1 and int(metadata["resourceVersion"]) == acting.store.version


def test_what_is_read_cannot_be_changed_by_accident(acting: Acting) -> None:
    made = acting.create(pod("one", a="b"))
    for change in (
        lambda: made["metadata"].update(name="two"),
        lambda: made["spec"]["containers"].append({}),
        lambda: made.__setitem__("spec", {}),
    ):
        with pytest.raises(TypeError):
            change()
    copy = thaw(made)
    copy["metadata"]["labels"] = {"mine": "yes"}
    assert acting.get("pods", "here", "one")["metadata"]["labels"] == {"a": "b"}


def test_a_stale_writer_is_refused_and_a_same_write_is_none(acting: Acting) -> None:
    first = acting.create(config("c", a="1"))
    second = acting.patch("configmaps", "here", "c", {"data": {"a": "2"}})
    with pytest.raises(ApiProblem) as problem:
        acting.replace({**first, "data": {"a": "3"}})
    assert refused(problem) == (409, "Conflict")
    assert acting.replace(second) == second
    assert acting.store.version == int(second["metadata"]["resourceVersion"])


def test_generation_counts_intentions_not_status(acting: Acting) -> None:
    body = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    template = {"workerTemplate": {"spec": {"containers": [{"name": "e", "image": "i"}]}}}
    acting.create(
        {
            **body,
            "metadata": {"name": "l", "namespace": "here"},
            "spec": {"replicas": 2, "leaderWorkerTemplate": template},
            "status": {"replicas": 9},
        }
    )
    assert "status" not in acting.get(LWS, "here", "l"), "status is written on its own path"
    acting.write_status(LWS, "here", "l", {"replicas": 2})
    acting.patch(LWS, "here", "l", {"metadata": {"labels": {"a": "b"}}, "status": {"replicas": 7}})
    stored = acting.get(LWS, "here", "l")
    assert stored["metadata"]["generation"] == 1 and stored["status"] == {"replicas": 2}
    assert acting.scale(LWS, "here", "l", 5)["spec"]["replicas"] == 5
    assert acting.get(LWS, "here", "l")["metadata"]["generation"] == 2


def test_changes_come_in_order_with_what_was_before(acting: Acting) -> None:
    async def seen() -> list[tuple[str, object, object]]:
        with acting.subscribe("pods") as changes:
            assert await changes.next(0.001) == []
            acting.create(pod("one", step="1"))
            acting.create(config("other"))
            acting.patch("pods", "here", "one", {"metadata": {"labels": {"step": "2"}}})
            acting.delete("pods", "here", "one", grace_s=0)
            found = await changes.next()
        acting.create(pod("late"))
        assert changes.drain() == []
        return [(each.type, step(each.old), step(each.new)) for each in found]

    def step(doc: Doc | None) -> object:
        return doc and doc["metadata"]["labels"]["step"]

    assert asyncio.run(seen()) == [("ADDED", None, "1"), ("MODIFIED", "1", "2"), ("DELETED", "2", "2")]


def test_a_running_pod_is_marked_first_and_ended_by_its_kubelet(acting: Acting) -> None:
    acting.create(pod("one"))
    marked = acting.delete("pods", "here", "one")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert acting.delete("pods", "here", "one") == marked, "asking again changes nothing"
    acting.delete("pods", "here", "one", grace_s=0)
    assert acting.find("pods", "here", "one") is None


def test_finalizers_hold_an_object_until_the_last_is_gone(acting: Acting) -> None:
    made = config("held")
    made["metadata"]["finalizers"] = ["example.com/a"]
    acting.create(made)
    assert acting.delete("configmaps", "here", "held")["metadata"]["deletionTimestamp"]
    acting.patch("configmaps", "here", "held", {"metadata": {"finalizers": None}})
    assert acting.find("configmaps", "here", "held") is None


def test_only_the_object_that_was_meant_is_deleted(acting: Acting) -> None:
    first = acting.create(config("c"))
    acting.delete("configmaps", "here", "c", uid=first["metadata"]["uid"])
    acting.create(config("c"))
    for condition in ({"uid": first["metadata"]["uid"]}, {"version": first["metadata"]["resourceVersion"]}):
        with pytest.raises(ApiProblem) as problem:
            acting.delete("configmaps", "here", "c", **condition)
        assert refused(problem) == (409, "Conflict")


def test_dependents_are_found_by_owner(acting: Acting) -> None:
    owner = acting.create(config("owner"))["metadata"]
    made = pod("child")
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    ]
    acting.create(made)
    assert [(ref, doc["metadata"]["name"]) for ref, doc in acting.dependents(owner["uid"])] == [
        ("pods", "child")
    ]
    acting.patch("pods", "here", "child", {"metadata": {"ownerReferences": None}})
    assert acting.dependents(owner["uid"]) == []


@pytest.mark.parametrize(
    ("labels", "fields", "names"),
    [
        ("app=a", "", ["one", "two"]),
        ("app!=a", "", ["three"]),
        ("app in (a,b),tier", "", ["two"]),
        ("!tier", "", ["one", "three"]),
        ("app notin (b)", "metadata.name!=one", ["two"]),
        ("", "spec.nodeName=gpu-0,metadata.namespace=here", ["one", "three", "two"]),
        ("", "spec.nodeName=elsewhere", []),
    ],
)
def test_selectors(acting: Acting, labels: str, fields: str, names: list[str]) -> None:
    for made in (pod("one", app="a"), pod("two", app="a", tier="x"), pod("three", app="b")):
        acting.create(made)
    found = acting.list("pods", "here", labels=labels, fields=fields)
    assert [each["metadata"]["name"] for each in found] == names


@pytest.mark.parametrize("selector", ["a=b c", "in (a)", "a=(", "=x"])
def test_a_selector_that_is_none_is_refused(acting: Acting, selector: str) -> None:
    with pytest.raises(ApiProblem) as problem:
        acting.list("pods", labels=selector)
    assert refused(problem) == (400, "BadRequest")


def test_nothing_is_made_where_there_is_no_namespace(acting: Acting) -> None:
    elsewhere = pod("one")
    elsewhere["metadata"]["namespace"] = "nowhere"
    with pytest.raises(ApiProblem) as problem:
        acting.create(elsewhere)
    assert refused(problem) == (404, "NotFound") and problem.value.message == 'namespaces "nowhere" not found'


def test_a_dry_run_answers_and_stores_nothing(acting: Acting) -> None:
    before = acting.store.version
    assert acting.create(pod("one"), dry_run=True)["metadata"]["uid"]
    assert acting.find("pods", "here", "one") is None and acting.store.version == before
