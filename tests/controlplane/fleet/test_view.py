"""Sets, slices, revisions, roles and groups from recorded and made objects."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.names import private_service_name, read_time
from controlplane.fleet.nodes import derive_node
from controlplane.fleet.view import derive_role, derive_set
from tests.controlplane.fleet.world import START, make_child, make_pod, make_set, recorded, role

ROLES = [role("prefill", 2), role("decode", 1)]


def test_the_recorded_settled_set() -> None:
    found = recorded("settled")
    view = derive_set(found["set"], found["children"], found["pods"])
    assert (view.namespace, view.name, view.slice_keys) == ("llm", "chat", ("0",))
    assert dict(view.desired) == {"prefill": 2, "decode": 1}
    assert view.target and view.target_certain
    assert view.counts() == {("0", view.target, "prefill"): 2, ("0", view.target, "decode"): 1}
    prefill = view.role("0", view.target, "prefill")
    assert prefill is not None
    assert (prefill.wanted, prefill.ready, prefill.reported, prefill.size) == (2, 2, 2, 2)
    assert [[pod.worker for pod in group.pods] for group in prefill.groups] == [[0, 1], [0, 1]]
    assert prefill.unready_since is None
    assert prefill.containers == {
        "worker/engine": {
            "image": "registry.example/engine:v1",
            "command": ["serve"],
            "args": ["--tensor-parallel-size=2", "--flag="],
        }
    }
    for pod in (pod for group in prefill.groups for pod in group.pods):
        assert pod.node.startswith("gpu-")
        assert pod.images["engine"]["image_id"].startswith("registry.example/engine@sha256:")
    assert view.started == {
        view.target: min(role.created_at for role in view.places().values() if role.created_at)
    }
    assert json.loads(json.dumps(view.as_json())) == view.as_json()


def test_the_summary_moves_only_with_what_it_means() -> None:
    """A resourceVersion, a heartbeat or a condition's time must not cost a write to the database."""
    found = recorded("settled")
    before = derive_set(found["set"], found["children"], found["pods"]).as_json()
    for item in [found["set"], *found["children"], *found["pods"]]:
        item["metadata"]["resourceVersion"] = "999999"
        for condition in (item.get("status") or {}).get("conditions", []):
            condition["lastProbeTime"] = "2026-11-30T05:00:00Z"
    assert derive_set(found["set"], found["children"], found["pods"]).as_json() == before


def test_the_recorded_mid_rollout_has_both_revisions_oldest_first() -> None:
    found = recorded("waiting")
    view = derive_set(found["set"], found["children"], found["pods"])
    labels = list(view.slices["0"].revisions)
    assert len(labels) == 2 and labels[1] == view.target
    assert view.started[labels[0]] < view.started[labels[1]]
    new = view.role("0", view.target, "prefill")
    assert new is not None and (new.wanted, new.ready, new.reported) == (1, 0, 0)
    old = view.role("0", labels[0], "prefill")
    assert old is not None and (old.wanted, old.ready, old.initial) == (2, 2, 2)


def test_slices_are_told_apart_and_an_adopted_child_without_the_label_is_slice_0() -> None:
    ds = make_set(ROLES, slices=2)
    children = [make_child(each, "aaaa1111", 1) for each in ROLES]
    children += [make_child(each, "aaaa1111", 1, slice_key="1", born=5) for each in ROLES]
    view = derive_set(ds, children)
    assert view.slice_keys == ("0", "1")
    assert set(view.counts()) == {(key, "aaaa1111", name) for key in "01" for name in ("prefill", "decode")}
    assert view.started["aaaa1111"] == START
    assert len(view.members["aaaa1111"]) == 4


def test_slices_are_in_numeric_order() -> None:
    children = [make_child(ROLES[0], "aaaa1111", 1, slice_key=str(number)) for number in (10, 9, 1)]
    assert list(derive_set(make_set(ROLES, slices=11), children).slices) == ["1", "9", "10"]


def test_what_belongs_to_another_set_of_the_same_name_is_a_stranger() -> None:
    children = [make_child(ROLES[0], "aaaa1111", 1), make_child(ROLES[1], "aaaa1111", 7, owner="other-uid")]
    elsewhere = make_child(ROLES[1], "aaaa1111", 3)
    elsewhere["metadata"]["namespace"] = "other"
    view = derive_set(make_set(ROLES), [*children, elsewhere])
    assert view.counts() == {("0", "aaaa1111", "prefill"): 1}
    assert view.strangers == ("chat-aaaa1111-decode",)


def test_a_role_that_an_outside_scaler_sizes_has_no_desired_count() -> None:
    view = derive_set(make_set([role("prefill", 3, external=True), role("decode", None)]), [])
    assert dict(view.desired) == {"prefill": None, "decode": 1}


@pytest.mark.parametrize(
    ("pods", "ready"),
    [
        ([(0, 0, True), (0, 1, True)], 1),
        ([(0, 0, True), (0, 1, False)], 0),
        ([(0, 0, False), (0, 1, True)], 0),
        ([(0, 0, True)], 0),
        ([(0, 1, True)], 0),
        ([(0, 0, True), (0, 1, True), (1, 0, True)], 1),
        ([(0, 0, True), (0, 1, True), (3, 0, True), (3, 1, True)], 2),
    ],
)
def test_a_group_is_ready_when_all_of_it_is(pods: list[tuple[int, int, bool]], ready: int) -> None:
    child = make_child(role("prefill", 2, size=2), "aaaa1111", 2)
    made = [make_pod(child, group, worker, ready=state) for group, worker, state in pods]
    assert derive_role(child, made).ready == ready


def test_a_leaving_or_failed_pod_is_not_ready() -> None:
    child = make_child(ROLES[0], "aaaa1111", 2)
    leaving = make_pod(child, 0, metadata={"deletionTimestamp": "2026-11-30T04:10:00Z"})
    failed = make_pod(child, 1, phase="Failed")
    view = derive_role(child, [leaving, failed])
    assert view.ready == 0
    assert [group.pods[0].leaving for group in view.groups] == [True, False]


def test_pods_that_an_earlier_object_of_the_name_left_are_not_counted() -> None:
    child = make_child(ROLES[0], "aaaa1111", 1, born=100)
    assert derive_role(child, [make_pod(child, 0, born=50)]).groups == ()
    assert derive_role(child, [make_pod(child, 0, born=100)]).ready == 1


def test_since_when_a_role_waits() -> None:
    child = make_child(ROLES[0], "aaaa1111", 3, ready=1, changed=40)
    pods = [
        make_pod(child, 0),
        make_pod(child, 1, ready=False, since=20),
        make_pod(child, 2, ready=False, since=30),
    ]
    assert derive_role(child, pods).unready_since == START + timedelta(seconds=20)
    # A group without a pod (quota, webhook) waits since the set last moved.
    assert derive_role(child, pods[:1]).unready_since == START + timedelta(seconds=40)
    child["status"]["readyReplicas"] = 3
    assert derive_role(child, [make_pod(child, index) for index in range(3)]).unready_since is None


def test_why_a_pod_waits() -> None:
    child = make_child(ROLES[0], "aaaa1111", 1)
    crash = {"name": "engine", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 4}
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    views = [
        derive_role(child, [make_pod(child, 0, ready=False, **status)]).groups[0].pods[0]
        for status in ({"containerStatuses": [crash]}, {"conditions": [unplaced], "containerStatuses": []})
    ]
    assert [(view.waiting, view.restarts) for view in views] == [
        ("CrashLoopBackOff", 4),
        ("Unschedulable", 0),
    ]


def test_status_of_an_older_spec_is_not_observed() -> None:
    child = make_child(ROLES[0], "aaaa1111", 1)
    assert derive_role(child).observed
    child["metadata"]["generation"] = 2
    assert not derive_role(child).observed


def test_objects_without_their_optional_parts_are_read() -> None:
    ds = {"metadata": {"name": "chat", "namespace": "llm", "uid": "u"}, "spec": {}}
    bare = {"metadata": {"name": "x", "namespace": "llm"}}
    assert derive_set(ds, [bare], [bare]).counts() == {}
    view = derive_role(bare, [bare])
    assert (view.wanted, view.reported, view.size, view.ready) == (1, 0, 1, 0)


def test_the_name_of_the_private_service() -> None:
    assert private_service_name("a-r-p") == "a-r-p-prv"


@given(st.text(max_size=30) | st.none() | st.integers())
def test_unreadable_times_are_none(text: object) -> None:
    found = read_time(text)
    assert found is None or found.tzinfo is not None


def test_nodes() -> None:
    node = {
        "metadata": {"name": "n"},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "4", "nvidia.com/gpu": "8", "memory": "1Gi"},
        },
    }
    view = derive_node(node)
    assert (view.ready, view.trouble, view.devices) == (True, "cordoned", {"nvidia.com/gpu": 8})
    broken = deepcopy(node)
    broken["status"]["conditions"][0]["status"] = "Unknown"  # type: ignore[index]
    assert derive_node(broken).trouble == "not ready"
