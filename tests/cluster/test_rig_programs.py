"""Programs in place of containers: the rig runs them as a kubelet would, and their pods say what became of them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import urllib3

from deploy.rig import Api, ApiError, NodePool, PodProgram, Rig, service_account, until, workloads
from deploy.rig.build import available
from deploy.rig.programs import epp
from deploy.rig.workloads import is_ready
from tests.cluster.programs import (
    EPP_CONFIG,
    PROGRAM,
    SERVER,
    ask,
    config_map,
    container,
    deployment,
    epp_parts,
    job,
    job_condition,
    mounted,
    pods,
    ready_pod,
)

pytestmark = pytest.mark.rig

Doc = dict[str, Any]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A rig of these tests' own, with programs."""
    if not available(["epp", "path-crds"])[0]:
        if os.environ.get("LOCKSTEP_REQUIRE_RIG", "") in {"1", "true"}:
            pytest.fail("LOCKSTEP_REQUIRE_RIG is set, but there is no rig", pytrace=False)
        pytest.skip("NO RIG")
    source = tmp_path_factory.mktemp("program") / "program.py"
    source.write_text(PROGRAM)
    server = (sys.executable, str(source))
    programs = [
        PodProgram(SERVER, server),
        # As a program that knows no address to bind to.
        PodProgram(
            "registry.example/everywhere", (*server, "--everywhere"), {8000: "--port"}, identity="nobody"
        ),
        PodProgram("registry.example/missing", ("/nonexistent/program",)),
        epp(),
    ]
    with Rig(
        nodes=NodePool(count=2),
        programs=programs,
        identities=[service_account("app", "with-account", "app")],
        path_crds=True,
        run_lws=False,
    ) as running:
        yield running


@pytest.fixture
def namespace(rig: Rig) -> Iterator[str]:
    """A namespace of the test's own, gone afterwards."""
    client = rig.client()
    name = workloads.make_namespace(client, f"test-{os.getpid()}-{next(_numbers)}")
    yield name
    client.delete(f"/api/v1/namespaces/{name}")


def test_a_deployment_runs_its_program(rig: Rig, namespace: str) -> None:
    env = [
        {"name": "WHERE", "value": "$(NODE)/$(MISSING)/$$(NODE)"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "MINE", "value": "$(NODE):/etc/app/app.yaml"},
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "NOTHING", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "k", "optional": True}}},
    ]
    options = mounted("settings", items=[{"key": "colour", "path": "deep/app.yaml"}])
    options["container"]["env"] = env
    rig.client().create(config_map(namespace, "settings", {"colour": "green", "other": "x"}))
    rig.client().create(deployment(namespace, ["--config=/etc/app/deep/app.yaml"], **options))
    pod = ready_pod(rig, namespace)
    assert ask(pod, "/config") == "green"
    seen = json.loads(ask(pod, "/env"))
    assert seen["WHERE"] == "$(NODE)/$(MISSING)/$(NODE)"  # only variables before it are known
    assert seen["NODE"] == pod["spec"]["nodeName"] and seen["COLOUR"] == "green" and "NOTHING" not in seen
    assert seen["MINE"].startswith(f"{pod['spec']['nodeName']}:/") and "/etc/app/" not in seen["MINE"]
    assert seen["POD_NAME"] == pod["metadata"]["name"] and seen["NAMESPACE"] == namespace
    assert seen["POD_IP"] == pod["status"]["podIP"] and Path(seen["KUBECONFIG"]).name == "admin.yaml"
    mount = Path(json.loads(ask(pod, "/argv"))[0].removeprefix("--config=")).parent.parent
    assert {path.name for path in mount.iterdir() if not path.name.startswith(".")} == {"deep"}
    status = container(pod)
    assert status["imageID"].startswith(f"{SERVER}@sha256:") and status["restartCount"] == 0
    assert status["started"] and "running" in status["state"] and pod["status"]["phase"] == "Running"
    assert f"hello from {pod['metadata']['name']}" in rig.program_log(pod)
    assert rig.gone() is None


def test_a_program_that_binds_everywhere_is_reached_on_its_pods_address(rig: Rig, namespace: str) -> None:
    """Two of them at once: each has a port of its own, and nobody sees it."""
    app = deployment(namespace, ["--port", "8001"], image="registry.example/everywhere@sha256:" + "ab" * 32)
    app["spec"]["replicas"] = 2
    app["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 8001}]
    rig.client().create(app)
    until("two ready", lambda: [is_ready(pod) for pod in pods(rig, namespace)] == [True, True])
    seen = {json.loads(ask(pod, "/env", 8001))["POD_NAME"] for pod in pods(rig, namespace)}
    assert seen == {pod["metadata"]["name"] for pod in pods(rig, namespace)}
    env = json.loads(ask(pods(rig, namespace)[0], "/env", 8001))
    assert Path(env["KUBECONFIG"]).name == "nobody.yaml"
    with pytest.raises(urllib3.exceptions.HTTPError):
        ask(pods(rig, namespace)[0], "/", 8000)


def test_a_program_acts_as_its_pods_service_account(rig: Rig) -> None:
    namespace = workloads.make_namespace(rig.client(), "with-account")
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "app", "namespace": namespace},
    }
    rig.client().create(account)
    rig.client().create(deployment(namespace, serviceAccountName="app"))
    config = Path(json.loads(ask(ready_pod(rig, namespace), "/env"))["KUBECONFIG"])
    with pytest.raises(ApiError) as refused:
        Api(config).items(f"/api/v1/namespaces/{namespace}/pods")
    assert 'User "system:serviceaccount:with-account:app" cannot list' in refused.value.message


def test_a_rollout_by_another_config_map_leaves_the_old_pod_what_it_has(rig: Rig, namespace: str) -> None:
    client = rig.client()
    for name in ("config-a", "config-b"):
        client.create(config_map(namespace, name, {"app.yaml": name}))
    args = ["--config", "/etc/app/app.yaml"]
    client.create(deployment(namespace, args, **mounted("config-a")))
    old = ready_pod(rig, namespace)
    # The new pod is not ready for a while, so both run.
    options = mounted("config-b")
    options["container"]["readinessProbe"] = {
        "httpGet": {"path": "/healthz", "port": "web"},
        "periodSeconds": 1,
    }
    rig.apply(deployment(namespace, args, **options))
    new = ready_pod(rig, namespace, other_than=old["metadata"]["uid"])
    assert ask(new, "/config") == "config-b"
    until("the old pod is gone", lambda: len(pods(rig, namespace)) == 1)
    assert "SIGTERM" in rig.program_log(old)
    with pytest.raises(urllib3.exceptions.HTTPError):
        ask(old, "/config")


def test_an_edited_config_map_reaches_the_files_and_nobody_is_told(rig: Rig, namespace: str) -> None:
    client = rig.client()
    client.create(config_map(namespace, "config", {"app.yaml": "before", "gone.yaml": ""}))
    client.create(deployment(namespace, ["--config=/etc/app/app.yaml"], **mounted("config")))
    pod = ready_pod(rig, namespace)
    client.replace(config_map(namespace, "config", {"app.yaml": "after", "new.yaml": ""}))
    until("the file changes", lambda: ask(pod, "/file") == "after")
    assert ask(pod, "/config") == "before"
    mount = Path(json.loads(ask(pod, "/argv"))[0].removeprefix("--config=")).parent
    assert {path.name for path in mount.iterdir() if not path.name.startswith("..")} == {
        "app.yaml",
        "new.yaml",
    }
    # A crash takes the edit up: the pod is the same, its configuration is not.
    with pytest.raises(urllib3.exceptions.HTTPError):
        ask(pod, "/die")
    again = until(
        "ready again",
        lambda: [p for p in pods(rig, namespace) if is_ready(p) and container(p)["restartCount"]],
    )
    assert again[0]["metadata"]["uid"] == pod["metadata"]["uid"] and ask(again[0], "/config") == "after"
    assert container(again[0])["lastState"]["terminated"]["exitCode"] == 3


def test_a_pod_waits_for_its_config_map(rig: Rig, namespace: str) -> None:
    rig.client().create(deployment(namespace, ["--config=/etc/app/app.yaml"], **mounted("late")))
    waiting = until(
        "the container waits",
        lambda: [
            p
            for p in pods(rig, namespace)
            if "no ConfigMap late" in str(p["status"].get("containerStatuses"))
        ],
    )[0]
    assert waiting["status"]["phase"] == "Pending" and not is_ready(waiting)
    assert container(waiting)["state"]["waiting"]["reason"] == "ContainerCreating"
    rig.client().create(config_map(namespace, "late", {"app.yaml": "here"}))
    assert ask(ready_pod(rig, namespace), "/config") == "here"


def test_a_crash_is_a_crash_loop_and_the_rollout_never_ends(rig: Rig, namespace: str) -> None:
    client = rig.client()
    client.create(deployment(namespace))
    old = ready_pod(rig, namespace)
    rig.apply(deployment(namespace, ["--exit=7"]))

    def crashed() -> list[Doc]:
        new = [pod for pod in pods(rig, namespace) if pod["metadata"]["uid"] != old["metadata"]["uid"]]
        return [p for p in new if container(p)["restartCount"] >= 2 and "waiting" in container(p)["state"]]

    pod = until("two restarts", crashed, every_s=0.05)[0]
    status = container(pod)
    assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff" and "back-off 4s" in str(
        status["state"]
    )
    ended = status["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (7, "Error") and not is_ready(pod)
    assert pod["status"]["phase"] == "Running"
    assert rig.program_log(pod).count("hello") == 3

    def stuck() -> list[Doc]:
        found = client.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/app")["status"]["conditions"]
        return [each for each in found if each.get("reason") == "ProgressDeadlineExceeded"]

    until("the rollout is given up", stuck)
    assert ask(ready_pod(rig, namespace), "/") == "ok"  # the old pod serves on
    client.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments/app")
    until("both end", lambda: not pods(rig, namespace), limit_s=5)  # a back-off is not waited for


def test_a_program_that_is_not_there(rig: Rig, namespace: str) -> None:
    rig.client().create(deployment(namespace, image="registry.example/missing:v1"))
    pod = until("a crash", lambda: [p for p in pods(rig, namespace) if "StartError" in str(p["status"])])[0]
    assert "No such file" in rig.program_log(pod)


def test_an_image_that_cannot_be_pulled_stays_a_play(rig: Rig, namespace: str) -> None:
    """A behaviour that is named goes before the program, and such a pod ends like any other."""
    rig.client().create(deployment(namespace, image=f"{SERVER}:v2-pull-error"))
    pod = until(
        "a pull error", lambda: [p for p in pods(rig, namespace) if "ImagePullBackOff" in str(p["status"])]
    )[0]
    rig.client().delete(f"/apis/apps/v1/namespaces/{namespace}/deployments/app")
    until("it is gone", lambda: not pods(rig, namespace))
    assert rig.program_log(pod) == ""


def test_readiness_follows_the_containers_own_probe(rig: Rig, namespace: str) -> None:
    probe = {"httpGet": {"path": "/healthz", "port": "web"}, "periodSeconds": 1, "failureThreshold": 1}
    rig.client().create(deployment(namespace, container={"readinessProbe": probe}))
    pod = ready_pod(rig, namespace)
    ask(pod, "/sick")
    until("not ready", lambda: not is_ready(pods(rig, namespace)[0]))
    assert container(pods(rig, namespace)[0])["restartCount"] == 0
    ask(pod, "/well")
    assert ready_pod(rig, namespace)["metadata"]["uid"] == pod["metadata"]["uid"]


@pytest.mark.parametrize(("code", "ends"), [(0, "Complete"), (1, "Failed")])
def test_jobs_end_by_their_exit_code(rig: Rig, namespace: str, code: int, ends: str) -> None:
    rig.client().create(job(namespace, [f"--exit={code}"]))
    assert job_condition(rig, namespace) == ends
    pod = rig.client().items(f"/api/v1/namespaces/{namespace}/pods")[0]
    assert pod["status"]["phase"] == ("Failed" if code else "Succeeded")
    assert container(pod)["state"]["terminated"]["exitCode"] == code and container(pod)["restartCount"] == 0
    rig.client().delete(f"/apis/batch/v1/namespaces/{namespace}/jobs/job")
    until("its pod goes with it", lambda: not rig.client().items(f"/api/v1/namespaces/{namespace}/pods"))


def test_a_job_may_restart_in_place(rig: Rig, namespace: str) -> None:
    rig.client().create(job(namespace, ["--exit=1"], policy="OnFailure", retries=1))
    assert job_condition(rig, namespace) == "Failed"


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_deleted_pod_has_its_grace(rig: Rig, namespace: str, stubborn: bool) -> None:
    args = ["--child", "--stubborn"] if stubborn else ["--child"]
    rig.client().create(deployment(namespace, args))
    pod = ready_pod(rig, namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    began = time.monotonic()
    rig.client().delete(path)
    until("told to end", lambda: "SIGTERM" in rig.program_log(pod), every_s=0.02)
    if stubborn:
        assert rig.client().get(path)["metadata"]["deletionTimestamp"]
        assert ask(pod, "/") == "ok"  # it serves until it is killed
    until("gone", lambda: pod["metadata"]["uid"] not in str(pods(rig, namespace)), every_s=0.05)
    took = time.monotonic() - began
    assert (3 <= took < 6) if stubborn else took < 2.5
    with pytest.raises(urllib3.exceptions.HTTPError):
        ask(pod, "/")
    # A forced deletion takes the program with it at once.
    other = ready_pod(rig, namespace)
    rig.client().request(
        "DELETE",
        f"/api/v1/namespaces/{namespace}/pods/{other['metadata']['name']}",
        {"gracePeriodSeconds": 0},
    )

    def refused() -> bool:
        try:
            ask(other, "/")
        except urllib3.exceptions.HTTPError:
            return True
        return False

    until("killed", refused, limit_s=2)


def test_programs_outlive_a_restart_of_the_api_server(rig: Rig, namespace: str) -> None:
    rig.client().create(deployment(namespace))
    pod = ready_pod(rig, namespace)
    rig.stop_apiserver()
    assert ask(pod, "/sick") == "ok"
    with pytest.raises(urllib3.exceptions.HTTPError):
        ask(pod, "/die")
    rig.start_apiserver()
    again = until(
        "the crash is told", lambda: [p for p in pods(rig, namespace) if container(p)["restartCount"]]
    )
    assert again[0]["metadata"]["uid"] == pod["metadata"]["uid"]
    rig.client().delete(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")
    assert ask(ready_pod(rig, namespace, other_than=pod["metadata"]["uid"]), "/") == "ok"


def test_a_killed_runner_leaves_nothing_and_the_next_one_takes_over(rig: Rig, namespace: str) -> None:
    rig.client().create(deployment(namespace, ["--child"]))
    pod = ready_pod(rig, namespace)
    children = psutil.Process(rig.pids()["runner"]).children()
    mine = [child for child in children if child.environ().get("POD_NAME") == pod["metadata"]["name"]]
    assert mine
    os.kill(rig.pids()["runner"], signal.SIGKILL)
    until("the part is missed", lambda: rig.gone() == "runner")
    until("its programs are gone", lambda: not any(child.is_running() for child in mine))
    rig.stop_part("runner")
    rig.start_part("runner")
    again = until(
        "started again",
        lambda: [p for p in pods(rig, namespace) if is_ready(p) and container(p)["restartCount"] == 1],
    )[0]
    assert again["metadata"]["uid"] == pod["metadata"]["uid"] and ask(again, "/") == "ok"
    assert container(again)["lastState"]["terminated"]["exitCode"] == 137
    # What the first start left behind in a session of its own is gone, too.
    sleeping = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "600"]]
    names = [p.environ().get("POD_NAME") for p in sleeping]
    assert names.count(pod["metadata"]["name"]) == 1


def test_the_real_epp_serves_a_pool(rig: Rig, namespace: str) -> None:
    rig.apply(epp_parts(namespace, EPP_CONFIG))
    pod = ready_pod(rig, namespace)
    until("metrics", lambda: "inference_extension_" in ask(pod, "/metrics", 9090))
    assert rig.gone() is None


def test_the_real_epp_refuses_a_bad_config(rig: Rig, namespace: str) -> None:
    rig.apply(epp_parts(namespace, EPP_CONFIG.replace("queue-scorer", "no-such-scorer")))
    pod = until(
        "a crash loop", lambda: [p for p in pods(rig, namespace) if "CrashLoopBackOff" in str(p["status"])]
    )[0]
    assert not is_ready(pod) and "no-such-scorer" in rig.program_log(pod)
