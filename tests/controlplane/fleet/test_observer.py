"""From changes to rows, without a cluster: what is written, when, and who is woken."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from hypothesis import given
from hypothesis import strategies as st

from controlplane.audit.actor import command
from controlplane.fleet import observer as observing
from controlplane.fleet.models import Cluster, Revision, Workload
from controlplane.fleet.observer import Observer, Superseded
from controlplane.fleet.picture import Picture
from controlplane.fleet.projections import keep_node, keep_object, keep_pod
from controlplane.fleet.services import claim_watch, register_cluster
from controlplane.fleet.target import templates_digest
from controlplane.fleet.view import derive_set
from controlplane.kube.reflector import Change
from controlplane.kube.resources import (
    CONFIG_MAPS,
    DISAGGREGATED_SETS,
    LEADER_WORKER_SETS,
    NODES,
    PODS,
    Resource,
)
from tests.controlplane.fleet.world import make_child, make_pod, make_set, recorded, role

Doc = dict[str, Any]
ROLES = [role("prefill", 2), role("decode", 1)]
NEW = [role("prefill", 2, image="e:2"), role("decode", 1, image="e:2")]
KEY = ("llm", "chat")


class World:
    """An observer with a clock of its own, fed as reflectors do it."""

    def __init__(self, cluster: Cluster) -> None:
        self.now = 1000.0
        self.woken: list[set[str]] = []
        self.objects: dict[tuple[Resource, tuple[str, str]], Doc] = {}
        self.observer = Observer(
            cluster_id=cluster.pk,
            fence=claim_watch(cluster_id=cluster.pk),
            stuck_after=timedelta(seconds=600),
            wake=self.woken.append,
            clock=lambda: self.now,
        )

    def put(self, resource: Resource, item: Doc) -> None:
        metadata = item["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        change = Change(resource, key, self.objects.get((resource, key)), item)
        self.objects[(resource, key)] = item
        self.observer.picture.take(change, now=self.now)

    def drop(self, resource: Resource, item: Doc) -> None:
        key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
        old = self.objects.pop((resource, key))
        self.observer.picture.take(Change(resource, key, old, None), now=self.now)

    def put_set(
        self, roles: list[Doc], revision: str, *, uid: str = "set-uid", ready: bool = True
    ) -> list[Doc]:
        self.put(DISAGGREGATED_SETS, make_set(roles, uid=uid))
        children = [make_child(each, revision, each["spec"]["replicas"], owner=uid) for each in roles]
        for child in children:
            self.put(LEADER_WORKER_SETS, child)
            for group in range(child["spec"]["replicas"]):
                self.put(PODS, make_pod(child, group, ready=ready))
        return children

    def run(self, seconds: float) -> int:
        """Let time pass as the watch process does; how many looks were taken."""
        before = self.observer.tally.looks
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            self.observer.work()
        return self.observer.tally.looks - before


@pytest.fixture
def world(db: None) -> World:
    return World(register_cluster(name="east", context="rig", environment="staging", actor=command("test")))


def test_a_burst_is_one_look_and_a_busy_set_is_looked_at_twice_a_second(world: World) -> None:
    children = world.put_set(ROLES, "aaaa1111")
    assert world.run(0.4) == 1
    assert Workload.objects.get().state == "settled"
    before = world.observer.tally.writes
    for step in range(100):
        world.put(PODS, make_pod(children[0], 0, ready=step % 2 == 0))
        world.run(0.1)
    assert world.observer.tally.writes - before <= 21
    assert world.observer.tally.writes - before >= 15
    assert max(world.observer.tally.lags) <= 0.7


def test_what_changes_no_summary_wakes_but_writes_nothing(world: World) -> None:
    world.put_set(ROLES, "aaaa1111")
    world.run(10)
    writes, stamp = world.observer.tally.writes, Workload.objects.get().observed_at
    touched = make_set(ROLES)
    touched["metadata"]["annotations"] = {"lockstep.dev/row": "3"}
    world.woken.clear()
    world.put(DISAGGREGATED_SETS, touched)
    world.run(1)
    assert world.woken == [{"set-uid"}]
    assert world.observer.tally.writes == writes
    assert Workload.objects.get().observed_at == stamp


def test_a_settled_set_costs_no_looks(world: World) -> None:
    world.put_set(ROLES, "aaaa1111")
    world.run(12)
    assert world.run(60) == 0


def test_a_waiting_set_becomes_stuck_by_time_alone(world: World) -> None:
    children = world.put_set(ROLES, "aaaa1111")
    children[0]["status"]["readyReplicas"] = 1
    world.put(LEADER_WORKER_SETS, {**children[0], "status": {**children[0]["status"], "readyReplicas": 1}})
    world.run(1)
    # The objects are of a day long past, so the limit is over at once.
    assert Workload.objects.get().state == "stuck"
    assert 10 <= world.run(60) <= 14, "a set that is not settled is judged again every five seconds"


def test_roles_go_on_record_once_set_and_children_have_surely_both_been_seen(world: World) -> None:
    world.put_set(ROLES, "aaaa1111")
    world.run(1)
    revision = Revision.objects.get()
    assert (revision.label, revision.roles) == ("aaaa1111", None)
    assert revision.images["prefill"] == {"engine": {"image": "e:1", "image_ids": ["e@sha256:1"]}}
    world.run(8)
    revision.refresh_from_db()
    assert revision.roles == ROLES
    assert revision.roles_digest == templates_digest(ROLES)


def test_a_set_seen_before_its_children_puts_nothing_false_on_record(world: World) -> None:
    """Roles in another order make another label, and look the same as long as its children are not seen."""
    world.put_set(ROLES, "aaaa1111")
    world.run(10)
    world.put(DISAGGREGATED_SETS, make_set(ROLES[::-1]))
    world.run(10)
    assert Revision.objects.get().roles == ROLES, "what is on record under a label stays"
    for each in ROLES[::-1]:
        world.put(LEADER_WORKER_SETS, make_child(each, "dddd4444", 0, born=50))
    world.run(10)
    assert Workload.objects.get().target_revision == "dddd4444"
    assert Revision.objects.get(label="dddd4444").roles == ROLES[::-1]


def test_replicas_of_the_recorded_roles_follow_the_set(world: World) -> None:
    world.put_set(ROLES, "aaaa1111")
    world.run(10)
    more = [role("prefill", 5), role("decode", 1)]
    world.put(DISAGGREGATED_SETS, make_set(more))
    world.run(10)
    assert Revision.objects.get().roles == more


def test_a_revision_ends_with_its_last_object(world: World) -> None:
    old = world.put_set(ROLES, "aaaa1111")
    world.run(5)
    world.put_set(NEW, "bbbb2222")
    for child in old[:1]:
        world.drop(LEADER_WORKER_SETS, child)
    world.run(1)
    assert Revision.objects.filter(ended_at=None).count() == 2
    world.drop(LEADER_WORKER_SETS, old[1])
    world.run(1)
    assert [row.label for row in Revision.objects.filter(ended_at=None)] == ["bbbb2222"]


def test_a_deleted_set_is_gone_and_wakes_once_more(world: World) -> None:
    world.put_set(ROLES, "aaaa1111")
    world.run(1)
    world.woken.clear()
    world.drop(DISAGGREGATED_SETS, make_set(ROLES))
    world.run(1)
    assert Workload.objects.get().gone_at is not None
    assert world.woken == [{"set-uid"}]


def test_a_set_made_again_under_its_name_replaces_the_other(world: World) -> None:
    world.put_set(ROLES, "aaaa1111")
    world.run(1)
    world.put_set(ROLES, "aaaa1111", uid="second")
    world.run(1)
    assert {row.uid: row.gone_at is None for row in Workload.objects.all()} == {
        "set-uid": False,
        "second": True,
    }
    assert Workload.objects.get(uid="second").summary["strangers"] == []


def test_a_hold_and_a_node_make_their_sets_be_looked_at(world: World) -> None:
    children = world.put_set(ROLES, "aaaa1111")
    world.run(8)
    hold = {
        "metadata": {
            "name": "hold-llm.chat",
            "namespace": "lockstep",
            "labels": {"lockstep.dev/hold": "true"},
        },
        "data": {"namespace": "llm", "set": "chat", "operation": "1", "fence": "1"},
    }
    world.put(CONFIG_MAPS, hold)
    world.run(1)
    assert Workload.objects.get().state == "hold-breached"
    world.drop(CONFIG_MAPS, hold)
    world.run(1)
    assert Workload.objects.get().state == "settled"
    world.put(NODES, {"metadata": {"name": "gpu-1"}, "spec": {"unschedulable": True}, "status": {}})
    world.run(1)
    assert Workload.objects.get().summary["nodes"] == {"gpu-1": "not ready"}
    world.run(8)
    world.put(NODES, {"metadata": {"name": "elsewhere"}, "spec": {}, "status": {}})
    assert world.run(1) == 0, "a node without pods of the set is nothing to it"
    assert children


def test_one_set_that_cannot_be_read_hides_no_other(world: World) -> None:
    world.put_set(ROLES, "aaaa1111")
    broken = make_set(ROLES, uid="broken")
    broken["metadata"]["name"] = "broken"
    broken["spec"]["roles"] = [{"spec": {}}]
    world.put(DISAGGREGATED_SETS, broken)
    world.run(1)
    assert [row.uid for row in Workload.objects.all()] == ["set-uid"]
    assert world.observer.tally.failures == 1


def test_a_database_that_was_away_gets_everything_afterwards(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put_set(ROLES, "aaaa1111")
    real = observing.record_observation

    def away(**fields: Any) -> None:
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(observing, "record_observation", away)
    for _ in range(3):
        world.now += 1
        with pytest.raises(OperationalError):
            world.observer.work()
    monkeypatch.setattr(observing, "record_observation", real)
    world.run(1)
    assert Workload.objects.get().state == "settled"


def test_a_newer_watcher_ends_this_one(world: World) -> None:
    world.put_set(ROLES, "aaaa1111")
    claim_watch(cluster_id=Cluster.objects.get().pk)
    world.now += 1
    with pytest.raises(Superseded):
        world.observer.work()
    assert not Workload.objects.exists()


def test_a_restarted_watcher_writes_nothing_that_is_there_already(world: World) -> None:
    world.put_set(ROLES, "aaaa1111")
    world.run(10)
    stamp = Workload.objects.get().observed_at
    second = World(Cluster.objects.get())
    second.put_set(ROLES, "aaaa1111")
    second.run(10)
    assert Workload.objects.get().observed_at == stamp
    assert Revision.objects.count() == 1


@pytest.mark.parametrize("name", ["settled", "waiting", "wedged"])
def test_what_is_kept_is_all_that_the_view_reads(name: str) -> None:
    found = recorded(name)
    whole = derive_set(found["set"], found["children"], found["pods"])
    kept = derive_set(
        keep_object(found["set"]),
        [keep_object(child) for child in found["children"]],
        [keep_pod(pod) for pod in found["pods"]],
    )
    assert kept.as_json() == whole.as_json()
    assert kept.counts() == whole.counts()
    assert {place: role.unready_since for place, role in kept.places().items()} == {
        place: role.unready_since for place, role in whole.places().items()
    }


def test_a_heartbeat_of_a_node_is_not_kept() -> None:
    node = {
        "metadata": {"name": "n", "resourceVersion": "1", "labels": {}},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}]},
    }
    later = {
        **node,
        "metadata": {**node["metadata"], "resourceVersion": "2"},  # type: ignore[dict-item]
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2"}]},
    }
    assert keep_node(node) == keep_node(later)


NAMES = st.sampled_from(["a", "b"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["put-set", "drop-set", "put-pod", "drop-pod", "move-pod"]), NAMES, NAMES),
    max_size=40,
)


@given(STEPS)
def test_the_picture_equals_the_objects_whatever_the_order(steps: list[tuple[str, str, str]]) -> None:
    picture = Picture()
    objects: dict[tuple[Resource, str], Doc] = {}

    def enter(resource: Resource, name: str, new: Doc | None) -> None:
        old = objects.pop((resource, name), None)
        if new is not None:
            objects[(resource, name)] = new
        if old is not None or new is not None:
            picture.take(Change(resource, ("llm", name), old, new), now=1.0)

    def pod(name: str, owner: str) -> Doc:
        labels = {"disaggregatedset.x-k8s.io/name": owner}
        return {"metadata": {"name": name, "namespace": "llm", "labels": labels}, "spec": {}, "status": {}}

    actions: dict[str, Callable[[str, str], None]] = {
        "put-set": lambda name, _: enter(
            DISAGGREGATED_SETS, name, {"metadata": {"name": name, "namespace": "llm", "uid": name}}
        ),
        "drop-set": lambda name, _: enter(DISAGGREGATED_SETS, name, None),
        "put-pod": lambda name, owner: enter(PODS, name, pod(name, owner)),
        "move-pod": lambda name, owner: enter(PODS, name, pod(name, owner)),
        "drop-pod": lambda name, _: enter(PODS, name, None),
    }
    for action, name, other in steps:
        actions[action](name, other)
    for owner in ("a", "b"):
        facts = picture.facts(("llm", owner))
        assert facts.ds == objects.get((DISAGGREGATED_SETS, owner))
        expected = [
            item
            for (resource, _), item in objects.items()
            if resource == PODS and item["metadata"]["labels"]["disaggregatedset.x-k8s.io/name"] == owner
        ]
        assert sorted(each["metadata"]["name"] for each in facts.pods) == sorted(
            each["metadata"]["name"] for each in expected
        )
