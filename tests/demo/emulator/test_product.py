"""The product's own adapter on the emulator: what it reads, what it is refused, how its reflector follows."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from controlplane.fleet.release import guess_release
from controlplane.kube.client import Kube
from controlplane.kube.errors import (
    AlreadyExists,
    Conflict,
    Denied,
    Expired,
    ObjectMissing,
    ServerFailed,
    TooManyRequests,
    Unanswered,
    Unreachable,
)
from controlplane.kube.reflector import Change, Pace, Reflector
from controlplane.kube.resources import (
    CONFIG_MAPS,
    DISAGGREGATED_SETS,
    LEADER_WORKER_SETS,
    NODES,
    Resource,
)
from deploy.demo.emulator import Emulator
from deploy.rig import Api, until, workloads
from tests.demo.emulator.conftest import add_children, install_target

QUICK = Pace(backoff_base=0.01, backoff_cap=0.1, short_watch=0.01)


@pytest.fixture(scope="module", autouse=True)
def target(emulator: Emulator) -> None:
    install_target(emulator)


@pytest.fixture
def kube(emulator: Emulator) -> Iterator[Kube]:
    made = Kube.from_kubeconfig(str(emulator.kubeconfig("lockstep")), context="rig", timeout=5)
    with made:
        yield made
    emulator.clear_faults()


def test_it_reads_sets_by_pages_and_by_selector(kube: Kube, client: Api, namespace: str) -> None:
    client.create(workloads.disaggregated_set("model", namespace))
    add_children(client, namespace)
    assert kube.get(DISAGGREGATED_SETS, "model", namespace)["spec"]["roles"][0]["name"] == "prefill"
    found = kube.list(LEADER_WORKER_SETS, namespace, label_selector=f"{workloads.ROLE_LABEL}=decode")
    assert [each["spec"]["replicas"] for each in found.items] == [2]
    nodes = kube.list(NODES, page=3)
    assert len(nodes.items) == 8 and {each["kind"] for each in nodes.items} == {"Node"}


def test_it_tells_what_is_there_and_which_release(kube: Kube) -> None:
    assert kube.server_version()["gitVersion"].startswith("v1.")
    assert kube.find_api("keda.sh") and not kube.find_api("nobody.example")
    assert guess_release(kube.find_schema(DISAGGREGATED_SETS) or {}) == "0.9.0"
    with pytest.raises(ObjectMissing) as missing:
        kube.get(DISAGGREGATED_SETS, "none", "default")
    assert not missing.value.api_missing
    with pytest.raises((ObjectMissing, Denied)):
        kube.list(Resource("nobody.example", "v1", "things", "Thing"))


def test_its_guarded_writes(kube: Kube, client: Api, namespace: str) -> None:
    client.create(workloads.disaggregated_set("model", namespace))
    read = kube.get(DISAGGREGATED_SETS, "model", namespace)
    kube.patch(
        DISAGGREGATED_SETS,
        "model",
        namespace,
        {"metadata": {"annotations": {"a": "b"}}},
        resource_version=read["metadata"]["resourceVersion"],
    )
    with pytest.raises(Conflict):
        kube.replace(DISAGGREGATED_SETS, read)
    revision = add_children(client, namespace)
    child = f"model-{revision}-prefill"
    with pytest.raises(Conflict):
        kube.delete(LEADER_WORKER_SETS, child, namespace, uid="another", resource_version=None)
    parameter = {"metadata": {"name": "plain"}, "data": {"a": "1"}}
    kube.create(CONFIG_MAPS, parameter, "lockstep")
    with pytest.raises(AlreadyExists):
        kube.create(CONFIG_MAPS, parameter, "lockstep")
    with pytest.raises(Denied) as unable:
        kube.list(Resource("", "v1", "secrets", "Secret"), namespace)
    assert not unable.value.by_admission


def test_a_hold_names_its_policy(kube: Kube, client: Api, namespace: str) -> None:
    client.create(workloads.disaggregated_set("model", namespace))
    revision = add_children(client, namespace)
    name = f"hold-{namespace}.model"
    data = {"namespace": namespace, "set": "model", "operation": "7", "fence": "1"}
    metadata = {"name": name, "labels": {"lockstep.dev/hold": "true"}}
    kube.create(CONFIG_MAPS, {"metadata": metadata, "data": data}, "lockstep")
    with pytest.raises(Denied) as held:
        kube.patch(
            LEADER_WORKER_SETS,
            f"model-{revision}-prefill",
            namespace,
            {"spec": {"replicas": 9}},
            resource_version=None,
            dry_run=True,
        )
    assert held.value.policy == "lockstep-rollout-hold" and "lockstep hold 7" in held.value.message


def test_what_became_of_a_write_is_told_apart(
    emulator: Emulator, kube: Kube, client: Api, namespace: str
) -> None:
    client.create(workloads.disaggregated_set("model", namespace))

    def touch(value: str) -> None:
        body = {"metadata": {"annotations": {"touched": value}}}
        kube.patch(DISAGGREGATED_SETS, "model", namespace, body, resource_version=None)

    def touched() -> str:
        return str(
            client.get(workloads.set_path(namespace, "model"))["metadata"]["annotations"].get("touched")
        )

    touch("0")
    emulator.break_webhooks()
    with pytest.raises(ServerFailed) as down:
        touch("1")
    emulator.mend_webhooks()
    assert down.value.webhook_down and not kube.unanswered
    emulator.add_fault(do="status", code=429, retry_after_s=3, verbs=["patch"], users=["lockstep"], count=1)
    with pytest.raises(TooManyRequests) as busy:
        touch("2")
    assert busy.value.retry_after == 3 and touched() == "0"
    emulator.add_fault(
        do="lost", verbs=["patch"], resources=["disaggregatedsets"], users=["lockstep"], count=1
    )
    with pytest.raises(Unanswered):
        touch("3")
    assert kube.unanswered and touched() == "3", "the write was done, only its answer was lost"
    kube.unanswered = False
    emulator.add_fault(do="drop", verbs=["patch"], users=["lockstep"], count=1)
    with pytest.raises(Unanswered):
        touch("4")
    assert touched() == "3"
    kube.unanswered = False
    emulator.stop_apiserver()
    try:
        with pytest.raises(Unreachable):
            touch("5")
    finally:
        emulator.start_apiserver()
    touch("6")
    assert touched() == "6"


def test_a_reflector_follows_through_everything(
    emulator: Emulator, kube: Kube, client: Api, namespace: str
) -> None:
    changes: list[Change] = []
    seen = threading.Event()

    def note(change: Change) -> None:
        changes.append(change)
        seen.set()

    resource = DISAGGREGATED_SETS
    reflector = Reflector(kube, resource, namespace=namespace, pace=QUICK, on_change=note)
    reflector.start()
    try:
        assert reflector.synced.wait(5)

        def sees(name: str) -> None:
            client.create(workloads.disaggregated_set(name, namespace))
            until(f"{name} seen", lambda: (namespace, name) in reflector.store, every_s=0.01)

        sees("first")
        lists = reflector.lists
        emulator.drop_watches(["disaggregatedsets"])
        sees("second")
        assert reflector.lists == lists, "it goes on where it was"
        with_old = emulator.add_fault(do="drop", verbs=["watch"], resources=["disaggregatedsets"])
        emulator.drop_watches(["disaggregatedsets"])
        client.create(workloads.disaggregated_set("third", namespace))
        emulator.forget_history(["disaggregatedsets"])
        emulator.remove_fault(with_old)
        until("third seen", lambda: (namespace, "third") in reflector.store)
        assert reflector.lists > lists, "410: it has listed again"
        emulator.restart_apiserver()
        sees("fourth")
        client.delete(workloads.set_path(namespace, "first"))
        until("first gone", lambda: (namespace, "first") not in reflector.store)
    finally:
        reflector.stop()
    assert [change.key[1] for change in changes if change.old is None] == [
        "first",
        "second",
        "third",
        "fourth",
    ]


def test_a_list_is_begun_again_when_its_pages_expire(
    emulator: Emulator, kube: Kube, client: Api, namespace: str
) -> None:
    for index in range(5):
        metadata = {"name": f"c{index}", "namespace": "lockstep"}
        client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    first = True

    def each(item: dict[str, object]) -> dict[str, object]:
        nonlocal first
        if first:
            first = False
            emulator.forget_history()
        return item

    found = kube.list(CONFIG_MAPS, "lockstep", page=2, each=each)
    assert {f"c{index}" for index in range(5)} <= {item["metadata"]["name"] for item in found.items}
    with pytest.raises(Expired):
        for _ in kube.watch(CONFIG_MAPS, "lockstep", resource_version="2"):
            pass
