"""Faults on demand: which calls they meet, how often, and what a client sees of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3

from deploy.demo.emulator import Emulator
from deploy.demo.emulator.address import Address
from deploy.demo.emulator.faults import Fault
from deploy.demo.emulator.parts import Pace
from deploy.demo.emulator.requests import User
from deploy.demo.emulator.store import Store
from deploy.rig import Api, ApiError, until, workloads

Doc = dict[str, Any]


@pytest.fixture(autouse=True)
def clean(emulator: Emulator) -> Iterator[None]:
    yield
    emulator.clear_faults()


def where(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def put(client: Api, namespace: str, name: str = "c") -> Doc:
    metadata = {"name": name, "namespace": namespace}
    return client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


def status_of(call: Callable[[], object]) -> int:
    try:
        call()
    except ApiError as problem:
        return problem.status
    return 200


@pytest.mark.parametrize(
    ("code", "reason"),
    [(409, "Conflict"), (410, "Expired"), (500, "InternalError"), (503, "ServiceUnavailable")],
)
def test_a_refusal_is_answered_and_nothing_is_done(
    emulator: Emulator, client: Api, namespace: str, code: int, reason: str
) -> None:
    emulator.add_fault(do="status", code=code, verbs=["create"], resources=["configmaps"], count=1)
    with pytest.raises(ApiError) as problem:
        put(client, namespace)
    assert (problem.value.status, problem.value.reason) == (code, reason)
    assert client.items(where(namespace)) == []
    assert put(client, namespace), "only once"


def test_429_says_when_to_come_again(emulator: Emulator, namespace: str) -> None:
    impatient = Api(emulator.kubeconfig(), timeout_s=0.2)
    emulator.add_fault(do="status", code=429, retry_after_s=7, verbs=["list"])
    with pytest.raises(ApiError) as problem:
        impatient.items(where(namespace))
    assert problem.value.body["details"]["retryAfterSeconds"] == 7
    answer = impatient._pool.request("GET", emulator.server + where(namespace))
    assert answer.status == 429 and answer.headers["Retry-After"] == "7"


def test_a_fault_meets_only_what_it_names(emulator: Emulator, client: Api, namespace: str) -> None:
    put(client, namespace)
    emulator.add_fault(do="status", code=500, verbs=["get"], users=["stranger"], names=["c"])
    assert status_of(lambda: client.get(where(namespace, "c"))) == 200
    assert status_of(lambda: emulator.client("stranger").get(where(namespace, "c"))) == 500
    assert status_of(lambda: emulator.client("stranger").get(where(namespace, "other"))) == 404
    assert status_of(lambda: emulator.client("stranger").items(where(namespace))) == 200
    assert status_of(lambda: emulator.client("stranger").get("/readyz")) == 200


def test_a_share_is_the_same_in_every_run() -> None:
    address, user = Address("get", "/x", plural="pods"), User("somebody")

    def run(seed: int) -> list[bool]:
        fault = Fault("status", share=0.3, seed=seed)
        return [fault.fits(address, user) and fault.strikes() for _ in range(200)]

    assert run(1) == run(1) != run(2)
    assert 40 <= sum(run(1)) <= 80


def test_a_slow_list_is_slow_and_nothing_else_waits(emulator: Emulator, client: Api, namespace: str) -> None:
    emulator.add_fault(do="delay", delay_s=0.6, verbs=["list"], users=["stranger"])
    took: list[float] = []

    def slow() -> None:
        begun = time.monotonic()
        emulator.client("stranger").items(where(namespace))
        took.append(time.monotonic() - begun)

    thread = threading.Thread(target=slow)
    thread.start()
    begun = time.monotonic()
    client.items(where(namespace))
    assert time.monotonic() - begun < 0.6
    thread.join(10)
    assert took[0] >= 0.6


def test_an_answer_can_be_lost_after_the_write(emulator: Emulator, client: Api, namespace: str) -> None:
    emulator.add_fault(do="lost", verbs=["create"], count=1)
    with pytest.raises(urllib3.exceptions.HTTPError):
        put(client, namespace)
    assert client.get(where(namespace, "c")), "it was done"


def test_a_request_can_be_lost_before_it(emulator: Emulator, client: Api, namespace: str) -> None:
    emulator.add_fault(do="drop", verbs=["create"], count=1)
    with pytest.raises(urllib3.exceptions.HTTPError):
        put(client, namespace)
    assert client.items(where(namespace)) == []


def test_a_call_that_hangs_is_the_clients_to_end(emulator: Emulator, client: Api, namespace: str) -> None:
    emulator.add_fault(do="hang", verbs=["get"], count=1)
    impatient = Api(emulator.kubeconfig(), timeout_s=0.3)
    with pytest.raises(urllib3.exceptions.TimeoutError):
        impatient.get(where(namespace, "c"))
    assert status_of(lambda: client.get(where(namespace, "c"))) == 404


def test_broken_webhooks_fail_every_write_of_their_kinds(
    emulator: Emulator, client: Api, namespace: str
) -> None:
    emulator.break_webhooks()
    try:
        with pytest.raises(ApiError) as problem:
            client.create(workloads.disaggregated_set("model", namespace))
        assert (problem.value.status, problem.value.reason) == (500, "InternalError")
        assert problem.value.message.startswith(
            'Internal error occurred: failed calling webhook "vdisaggregatedset.kb.io": failed to call webhook: '
        )
        assert put(client, namespace), "other kinds have no webhook"
    finally:
        emulator.mend_webhooks()
    made = client.create(workloads.disaggregated_set("model", namespace))
    emulator.break_webhooks()
    try:
        assert client.patch(f"{client.path(made)}/status", {"status": {}}), "status is not theirs"
        client.delete(client.path(made))
    finally:
        emulator.mend_webhooks()


def test_a_stopped_server_is_gone_and_comes_back_the_same(
    emulator: Emulator, client: Api, namespace: str
) -> None:
    made = put(client, namespace)
    emulator.stop_apiserver()
    try:
        with pytest.raises(urllib3.exceptions.HTTPError):
            client.items(where(namespace))
    finally:
        emulator.start_apiserver()
    assert client.get(where(namespace, "c")) == made
    before = made["metadata"]["resourceVersion"]
    assert status_of(lambda: next(client.watch(where(namespace), version=before))) == 410, (
        "its memory is gone"
    )
    since = client.get(where(namespace))["metadata"]["resourceVersion"]
    put(client, namespace, "later")
    assert next(client.watch(where(namespace), version=since))["object"]["metadata"]["name"] == "later"


def test_a_paused_server_takes_calls_and_answers_none(
    emulator: Emulator, client: Api, namespace: str
) -> None:
    impatient = Api(emulator.kubeconfig(), timeout_s=0.3)
    emulator.pause("apiserver")
    try:
        with pytest.raises(urllib3.exceptions.TimeoutError):
            impatient.items(where(namespace))
    finally:
        emulator.resume("apiserver")
    assert client.items(where(namespace)) == []


# --- parts


class Counter:
    """Counts ConfigMaps into an annotation of the namespace, and falls over when told to."""

    name = "counter"

    async def run(self, store: Store, pace: Pace) -> None:
        acting = store.acting_as(User("counter"))
        with store.subscribe("configmaps") as changes:
            while True:
                await pace.going()
                for space in acting.list("namespaces"):
                    number = len(acting.list("configmaps", space["metadata"]["name"]))
                    body = {"metadata": {"annotations": {"count": str(number)}}}
                    acting.patch("namespaces", "", space["metadata"]["name"], body)
                if any(each.new["metadata"]["name"] == "poison" for each in await changes.next()):
                    raise RuntimeError("poisoned")


def test_parts_are_paused_stopped_and_survive_their_own_fall(
    emulator: Emulator, client: Api, namespace: str
) -> None:
    emulator.add_part(Counter())

    def count() -> str:
        found = client.get(f"/api/v1/namespaces/{namespace}")["metadata"]
        return str(found.get("annotations", {}).get("count"))

    put(client, namespace, "a")
    until("one counted", lambda: count() == "1")
    emulator.pause("counter")
    put(client, namespace, "b")
    assert count() == "1"
    emulator.resume("counter")
    until("two counted", lambda: count() == "2")
    put(client, namespace, "poison")
    until("it has begun again", lambda: count() == "3")
    emulator.stop_part("counter")
    put(client, namespace, "c")
    assert count() == "3" and emulator.gone() == "counter"
    with pytest.raises(KeyError):
        emulator.pause("nobody")


# --- the admin path


def test_the_admin_path_does_the_same_over_http(emulator: Emulator, client: Api, namespace: str) -> None:
    body = {"do": "status", "code": 500, "verbs": ["get"], "resources": ["configmaps"], "count": 2}
    name = client.request("POST", "/emulator/faults", body)["id"]
    assert status_of(lambda: client.get(where(namespace, "c"))) == 500
    found = client.get("/emulator")
    assert [(each["id"], each["met"]) for each in found["faults"]] == [(name, 1)]
    client.request("DELETE", f"/emulator/faults/{name}", {})
    assert status_of(lambda: client.get(where(namespace, "c"))) == 404
    assert not client.request("POST", "/emulator/webhooks", {"up": False})["webhooks"]["up"]
    assert client.request("POST", "/emulator/webhooks", {"up": True})["webhooks"]["up"]
    assert client.request("POST", "/emulator/policies", {"lag_s": 0})["policies"] == {"lag_s": 0.0}
    where_ = "/emulator/parts/garbage-collector"
    assert client.request("POST", f"{where_}/pause", {})["parts"]["garbage-collector"] == "paused"
    assert client.request("POST", f"{where_}/resume", {})["parts"]["garbage-collector"] == "running"
    assert client.request("POST", "/emulator/watches/drop", {})["dropped"] >= 0
    client.request("POST", "/emulator/history/forget", {"resources": ["configmaps"]})
    for wrong in ({"do": "nothing"}, {"do": "status", "unknown": 1}):
        assert status_of(lambda wrong=wrong: client.request("POST", "/emulator/faults", wrong)) == 400


def test_the_admin_path_is_for_administrators(emulator: Emulator) -> None:
    for who in ("nobody", "lockstep"):
        assert status_of(lambda who=who: emulator.client(who).get("/emulator")) == 403
