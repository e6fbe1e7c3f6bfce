"""The rig is what it says: a control plane with real rules, pods that behave as told, and a clean end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.rig import Api, ApiError, NodePool, Rig, RigFailed, RigUnavailable, until, workloads
from deploy.rig.build import binary, build
from deploy.rig.lws import LwsSource, chosen
from deploy.rig.workloads import NAME_LABEL, is_ready, pods_of, role

pytestmark = pytest.mark.rig

Doc = dict[str, Any]


def containers(rig: Rig, namespace: str, selector: str = f"{NAME_LABEL}=model") -> list[Doc]:
    """The first container's status of every pod that has one."""
    statuses = [pod["status"].get("containerStatuses") for pod in pods_of(rig.client(), namespace, selector)]
    return [status[0] for status in statuses if status]


def time_to_ready(pod: Doc) -> timedelta:
    """From the start of a pod to its last change of readiness; the API server keeps whole seconds."""
    ready = next(each for each in pod["status"]["conditions"] if each["type"] == "Ready")
    start = datetime.fromisoformat(pod["status"]["startTime"])
    return datetime.fromisoformat(ready["lastTransitionTime"]) - start


def test_a_set_of_four_and_two_becomes_ready(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    revision = make_set()
    assert len(revision) == 8
    names = {child["metadata"]["name"] for child in workloads.lws_of(rig.client(), namespace, "model")}
    slice_part = "0-" if rig.lws_has_slices else ""
    assert names == {f"model-{slice_part}{revision}-{role}" for role in ("prefill", "decode")}
    pods = pods_of(rig.client(), namespace, f"{NAME_LABEL}=model")
    assert len(pods) == 6
    assert all(pod["status"]["podIP"].startswith("127.") for pod in pods)
    assert len({pod["status"]["podIP"] for pod in pods}) == 6
    nodes = {node["metadata"]["name"]: node for node in rig.client().items("/api/v1/nodes")}
    assert all(
        "topology.kubernetes.io/rack" in nodes[pod["spec"]["nodeName"]]["metadata"]["labels"] for pod in pods
    )


def test_image_ids_follow_the_image(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    digest = "sha256:" + "ab" * 32
    make_set(
        roles=[
            role("prefill", 1, image="registry.example:5000/team/engine:v1"),
            role("decode", 1, image=f"registry.example/engine@{digest}"),
        ]
    )
    found = {status["image"]: status["imageID"] for status in containers(rig, namespace)}
    assert found[f"registry.example/engine@{digest}"] == f"registry.example/engine@{digest}"
    tagged = found["registry.example:5000/team/engine:v1"]
    assert tagged.startswith("registry.example:5000/team/engine@sha256:") and len(tagged.split(":")[-1]) == 64
    assert tagged.split("@")[1] != digest


def test_groups_larger_than_one_pod(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    make_set(roles=[role("prefill", 1, size=2), role("decode", 2, size=1)])
    assert len(pods_of(rig.client(), namespace, f"{NAME_LABEL}=model")) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"image": "registry.example/engine:v2-never-ready"},
        {"env": {"RIG_BEHAVIOUR": "never-ready"}},
        {"annotations": {"rig.lockstep.dev/behaviour": "never-ready"}},
    ],
    ids=["image tag", "environment", "annotation"],
)
def test_never_ready(rig: Rig, namespace: str, make_set: Callable[..., str], options: Doc) -> None:
    make_set(wait=False, roles=[role("prefill", 1, **options), role("decode", 1)])
    select = f"{NAME_LABEL}=model,{workloads.ROLE_LABEL}="
    until(
        "decode ready",
        lambda: [p for p in pods_of(rig.client(), namespace, select + "decode") if is_ready(p)],
    )
    until("prefill runs", lambda: containers(rig, namespace, select + "prefill"))
    prefill = pods_of(rig.client(), namespace, select + "prefill")[0]
    assert prefill["status"]["phase"] == "Running" and not is_ready(prefill)
    assert prefill["status"]["containerStatuses"][0]["imageID"]


def test_a_tag_called_latest_is_not_late(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    make_set(image="registry.example/engine:latest")
    for pod in pods_of(rig.client(), namespace, f"{NAME_LABEL}=model"):
        assert time_to_ready(pod) < timedelta(seconds=2)  # a late pod takes 5 s


def test_late_by_the_image_tag(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    make_set(
        wait=False, roles=[role("prefill", 1, image="registry.example/engine:v2-late-3s"), role("decode", 1)]
    )
    select = f"{NAME_LABEL}=model,{workloads.ROLE_LABEL}=prefill"
    until("prefill runs", lambda: containers(rig, namespace, select))
    assert not is_ready(pods_of(rig.client(), namespace, select)[0])
    until("prefill ready", lambda: is_ready(pods_of(rig.client(), namespace, select)[0]))
    assert time_to_ready(pods_of(rig.client(), namespace, select)[0]) >= timedelta(seconds=2)


def test_flicker(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    options = {"annotations": {"rig.lockstep.dev/behaviour": "flicker", "rig.lockstep.dev/period": "500ms"}}
    make_set(wait=False, roles=[role("prefill", 1, **options), role("decode", 1)])
    select = f"{NAME_LABEL}=model,{workloads.ROLE_LABEL}=prefill"

    def ready() -> list[bool]:
        return [is_ready(pod) for pod in pods_of(rig.client(), namespace, select)]

    for expected in (True, False, True, False):
        until(f"ready is {expected}", lambda expected=expected: ready() == [expected], every_s=0.05)
    assert containers(rig, namespace, select)[0]["restartCount"] == 0


def test_crash_counts_restarts(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    # With the default restart policy LWS rebuilds the group at the first restart and the count begins again.
    crash = role(
        "prefill",
        1,
        image="registry.example/engine:v2-crash",
        annotations={"rig.lockstep.dev/period": "500ms"},
        restart_policy="None",
    )
    make_set(wait=False, roles=[crash, role("decode", 1)])
    select = f"{NAME_LABEL}=model,{workloads.ROLE_LABEL}=prefill"
    until(
        "three restarts",
        lambda: [one for one in containers(rig, namespace, select) if one["restartCount"] >= 3],
    )
    status = containers(rig, namespace, select)[0]
    assert not status["ready"] and status["lastState"]["terminated"]["exitCode"] == 1


def test_an_image_that_cannot_be_pulled(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    make_set(
        wait=False, roles=[role("prefill", 1, image="registry.example/engine:pull-error"), role("decode", 1)]
    )
    select = f"{NAME_LABEL}=model,{workloads.ROLE_LABEL}=prefill"
    until("waiting", lambda: containers(rig, namespace, select))
    status = containers(rig, namespace, select)[0]
    assert status["state"]["waiting"]["reason"] == "ImagePullBackOff" and not status.get("imageID")


def test_pods_can_take_their_time_to_end(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    slow = role("prefill", 1, env={"RIG_TERMINATE_AFTER": "1500ms"})
    make_set(roles=[slow, role("decode", 1)])
    client, select = rig.client(), f"{NAME_LABEL}=model,{workloads.ROLE_LABEL}=prefill"
    pod = pods_of(client, namespace, select)[0]["metadata"]
    client.delete(f"/api/v1/namespaces/{namespace}/pods/{pod['name']}")
    # Still there, marked; then gone, and the StatefulSet makes another under the same name.
    assert pods_of(client, namespace, select)[0]["metadata"]["uid"] == pod["uid"]
    assert pods_of(client, namespace, select)[0]["metadata"]["deletionTimestamp"]
    until(
        "another pod",
        lambda: [one for one in pods_of(client, namespace, select) if one["metadata"]["uid"] != pod["uid"]],
    )


def test_readiness_can_be_flipped(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    make_set()
    client, select = rig.client(), f"{NAME_LABEL}=model,{workloads.ROLE_LABEL}=decode"
    assert len(workloads.set_pods_ready(client, namespace, select, ready=False)) == 2
    until("the set is not settled", lambda: not workloads.settled(client, namespace, "model"))
    assert [is_ready(pod) for pod in pods_of(client, namespace, select)] == [False, False]
    workloads.set_pods_ready(client, namespace, select, ready=True)
    workloads.wait_settled(client, namespace, "model")


def test_gpus_run_out(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    make_set(wait=False, roles=[role("prefill", 1, gpus=9), role("decode", 1)])
    select = f"{NAME_LABEL}=model,{workloads.ROLE_LABEL}=prefill"

    def unschedulable() -> list[Doc]:
        conditions = [
            c for p in pods_of(rig.client(), namespace, select) for c in p["status"].get("conditions") or []
        ]
        return [each for each in conditions if each.get("reason") == "Unschedulable"]

    assert "nvidia.com/gpu" in until("Pending for want of GPUs", unschedulable)[0]["message"]


def test_the_real_webhook_refuses_a_partition(rig: Rig, namespace: str) -> None:
    broken = workloads.disaggregated_set("model", namespace)
    pace = broken["spec"]["roles"][0]["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]
    pace["partition"] = 1
    with pytest.raises(ApiError) as refused:
        rig.client().create(broken)
    assert refused.value.status in {403, 422} and "partition" in refused.value.message
    assert "vdisaggregatedset.kb.io" in refused.value.message


def test_rights_are_real(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    make_set()
    path = workloads.set_path(namespace, "model")
    for name in ("nobody", "spare"):
        with pytest.raises(ApiError) as refused:
            rig.client(name).get(path)
        assert refused.value.status == 403 and f'User "{name}" cannot get' in refused.value.message
    for name in ("break-glass", "stranger"):
        assert rig.client(name).get(path)["kind"] == "DisaggregatedSet"
    with pytest.raises(ApiError) as refused:
        rig.client("lws").get(f"/api/v1/namespaces/{namespace}/configmaps/x")
    assert refused.value.status == 403


def test_who_writes_leader_worker_sets(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    """The admission hold keys on who acts: the controller must not be an administrator in disguise."""
    make_set()
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "SelfSubjectReview",
    }
    seen = rig.client("lws").request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    assert seen["status"]["userInfo"]["username"] == "system:serviceaccount:lws-system:lws-controller-manager"
    assert "system:masters" not in seen["status"]["userInfo"]["groups"]
    groups = rig.client("break-glass").request(
        "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review
    )
    assert "lockstep:break-glass" in groups["status"]["userInfo"]["groups"]


def test_webhooks_down_and_up(rig: Rig, namespace: str, make_set: Callable[..., str]) -> None:
    make_set()
    client, path = rig.client(), workloads.set_path(namespace, "model")
    touch = {"metadata": {"annotations": {"touched": "yes"}}}
    rig.break_webhooks()
    try:
        until("writes fail", lambda: _fails(client, path, touch))
        assert rig.gone() is None
    finally:
        rig.mend_webhooks()
    until("writes pass", lambda: not _fails(client, path, touch))
    rig.stop_lws()
    try:
        assert _fails(client, path, touch)
    finally:
        rig.start_lws()
    until("writes pass", lambda: not _fails(client, path, touch))


def _fails(client: Any, path: str, body: Doc) -> bool:
    try:
        client.patch(path, body)
    except ApiError as refused:
        assert refused.status == 500
        return True
    return False


def test_a_restarted_api_server_is_the_same_cluster(
    rig: Rig, namespace: str, make_set: Callable[..., str]
) -> None:
    revision = make_set()
    before = rig.client().get(workloads.set_path(namespace, "model"))["metadata"]["uid"]
    process = rig.pids()["apiserver"]
    rig.restart_apiserver()
    assert rig.pids()["apiserver"] != process
    assert rig.client().get(workloads.set_path(namespace, "model"))["metadata"]["uid"] == before
    # The controllers found it again: a new set becomes ready.
    assert make_set("second") == revision
    assert rig.gone() is None


def test_two_rigs_side_by_side_and_nothing_is_left(rig: Rig) -> None:
    with Rig(nodes=NodePool(count=1)) as other:
        assert other.server != rig.server and other.pod_cidr != rig.pod_cidr
        assert len(other.client().items("/api/v1/nodes")) == 1
        workloads.make_namespace(other.client(), "only-here")
        with pytest.raises(ApiError):
            rig.client().get("/api/v1/namespaces/only-here")
        # A fresh cluster without Lockstep's roles: its account may do nothing.
        with pytest.raises(ApiError) as refused:
            other.client("lockstep").items("/apis/disaggregatedset.x-k8s.io/v1/disaggregatedsets")
        assert refused.value.status == 403
        assert "system:serviceaccount:lockstep:lockstep" in refused.value.message
        # Also in the first seconds of a rig the garbage collector knows the kinds of LeaderWorkerSet.
        client = other.client()
        client.create(workloads.disaggregated_set("model", "only-here"))
        workloads.wait_settled(client, "only-here", "model")
        client.delete(workloads.set_path("only-here", "model"))
        until("no pod is left", lambda: not pods_of(client, "only-here", f"{NAME_LABEL}=model"), limit_s=10)
        pids, folder = other.pids(), other.dir
        assert set(pids) == {"keeper", "etcd", "apiserver", "controller-manager", "scheduler", "kwok", "lws"}
    assert [name for name, pid in pids.items() if psutil.pid_exists(pid)] == []
    assert not folder.exists()
    assert rig.gone() is None


_START_AND_HANG = """
import json, sys, time
from deploy.rig import NodePool, Rig
rig = Rig(nodes=NodePool(count=1), run_lws=False).start()
print(json.dumps([str(rig.dir), rig.pids()]), flush=True)
time.sleep(600)
"""


def test_a_killed_run_leaves_nothing(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", _START_AND_HANG],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        folder, pids = json.loads(run.stdout.readline())
        run.send_signal(signal.SIGKILL)
    until("all gone", lambda: not any(psutil.pid_exists(pid) for pid in pids.values()), limit_s=30)
    until("folder gone", lambda: not Path(folder).exists())


def test_a_killed_keeper_takes_its_children_along() -> None:
    rig = Rig(nodes=NodePool(count=1), run_lws=False).start()
    pids = rig.pids()
    os.kill(pids["keeper"], signal.SIGKILL)
    try:
        until(
            "children gone",
            lambda: not any(psutil.pid_exists(pid) for pid in pids.values() if pid != pids["keeper"]),
        )
    finally:
        rig.stop()


def test_a_failed_start_names_the_part_and_its_log(tmp_path: Path) -> None:
    broken = LwsSource(Path("/bin/false"), build().lws_config)
    with pytest.raises(RigFailed) as failed:
        Rig(nodes=NodePool(count=1), lws_source=broken).start()
    assert failed.value.part == "lws" and "ended while waiting for webhooks" in failed.value.problem


def test_another_manager_is_taken_from_the_environment() -> None:
    built = build()
    manager, config = str(built.programs["lws-manager"]), built.lws_config
    assert chosen(built, {}) == LwsSource(built.programs["lws-manager"], config)
    for named in (config, config / "crd" / "bases"):
        source = chosen(built, {"LOCKSTEP_LWS_BIN": manager, "LOCKSTEP_LWS_CRDS": str(named)})
        assert source.config == config and len(source.crds()) == 2
    with pytest.raises(RigUnavailable, match="/nowhere does not exist"):
        chosen(built, {"LOCKSTEP_LWS_BIN": "/nowhere"})


def test_the_command_starts_and_ends_a_rig_twice_in_one_folder(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-m", "deploy.rig", "up", "--dir", str(tmp_path), "--nodes", "1", "--no-lws"],
            cwd=root,
            stdout=subprocess.PIPE,
            text=True,
        ) as command:
            assert command.stdout is not None
            assert command.stdout.readline().startswith("The rig is ready: https://127.0.0.1:")
            named = command.stdout.readline().split("KUBECONFIG=")[1].strip()
            assert len(Api(Path(named)).items("/api/v1/nodes")) == 1
            children = psutil.Process(command.pid).children(recursive=True)
            command.send_signal(signal.SIGINT)
            assert command.communicate()[0].endswith("Stopping.\n")
        assert command.returncode == 0
        assert len(children) == 6 and not any(child.is_running() for child in children)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(RigFailed, match="other files"):
        Rig(folder=tmp_path).start()
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_the_upstream_planner_answers() -> None:
    question = '{"initial":[4,2],"target":[4,2],"surge":[1,1],"unavailable":[0,0]}\n'
    answer = subprocess.run(
        [binary("planner-oracle")], input=question, capture_output=True, text=True, check=True
    )
    assert answer.stdout.count('"old"') == 9 and '{"old":[0,0],"new":[4,2]}' in answer.stdout
