"""Programs in place of containers: the rig runs them as a kubelet would, and their pods say what became of them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import urllib3

from deploy.rig import ApiError, NodePool, PodProgram, Rig, RigFailed, until, workloads
from deploy.rig.build import available, build
from deploy.rig.programs import EPP_IMAGE, epp
from deploy.rig.workloads import is_ready, pods_of

pytestmark = pytest.mark.rig

Doc = dict[str, Any]
SERVER = "registry.example/server"
_numbers = itertools.count(1)

# What the pods of these tests run: a server on the pod's own address, or something that ends.
PROGRAM = """
import argparse, http.server, json, os, signal, socketserver, subprocess, sys
parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--exit", type=int)
parser.add_argument("--port", type=int, default=8000)
parser.add_argument("--everywhere", action="store_true")
parser.add_argument("--stubborn", action="store_true")
parser.add_argument("--child", action="store_true")
options = parser.parse_args()
print("hello from", os.environ["POD_NAME"], flush=True)
if options.exit is not None:
    sys.exit(options.exit)
at_start = open(options.config).read() if options.config else ""
def term(*_):
    print("SIGTERM", flush=True)
    if not options.stubborn:
        os._exit(0)
signal.signal(signal.SIGTERM, term)
if options.child:
    subprocess.Popen(["sleep", "600"], start_new_session=True)
state = {"healthy": True}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path in ("/sick", "/well"):
            state["healthy"] = self.path == "/well"
        if self.path == "/die":
            os._exit(3)
        answer = {
            "/config": at_start,
            "/file": open(options.config).read() if options.config else "",
            "/env": json.dumps(dict(os.environ)),
            "/argv": json.dumps(sys.argv[1:]),
        }.get(self.path, "ok")
        self.send_response(503 if self.path == "/healthz" and not state["healthy"] else 200)
        self.end_headers()
        self.wfile.write(answer.encode())
    def log_message(self, *_):
        pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
Server(("" if options.everywhere else os.environ["POD_IP"], options.port), Handler).serve_forever()
"""


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
    with Rig(nodes=NodePool(count=2), programs=programs, path_crds=True, run_lws=False) as running:
        yield running


@pytest.fixture
def namespace(rig: Rig) -> Iterator[str]:
    """A namespace of the test's own, gone afterwards."""
    client = rig.client()
    name = workloads.make_namespace(client, f"test-{os.getpid()}-{next(_numbers)}")
    yield name
    client.delete(f"/api/v1/namespaces/{name}")


def deployment(namespace: str, args: Sequence[str] = (), *, image: str = f"{SERVER}:v1", **pod: Any) -> Doc:
    """One replica of a program; ``container`` is merged into the container, the rest into the pod's spec."""
    container = {
        "name": "main",
        "image": image,
        "args": list(args),
        "ports": [{"containerPort": 8000, "name": "web"}],
        **pod.pop("container", {}),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "app", "namespace": namespace},
        "spec": {
            "progressDeadlineSeconds": 5,
            "selector": {"matchLabels": {"app": "app"}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": "app"}},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 3, **pod},
            },
        },
    }


def config_map(namespace: str, name: str, data: dict[str, str]) -> Doc:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def mounted(name: str, **volume: Any) -> Doc:
    """Pod options that mount a ConfigMap at /etc/app."""
    return {
        "volumes": [{"name": "config", "configMap": {"name": name, **volume}}],
        "container": {"volumeMounts": [{"name": "config", "mountPath": "/etc/app"}]},
    }


def pods(rig: Rig, namespace: str) -> list[Doc]:
    return pods_of(rig.client(), namespace, "app=app")


def ready_pod(rig: Rig, namespace: str, *, other_than: str = "") -> Doc:
    """The pod that is Ready, as soon as there is one."""
    return until(
        "a ready pod",
        lambda: [p for p in pods(rig, namespace) if is_ready(p) and p["metadata"]["uid"] != other_than],
    )[0]


def container(pod: Doc) -> Doc:
    fresh = {"restartCount": 0, "state": {}}
    found: Doc = pod["status"].get("containerStatuses", [fresh])[0]
    return found


def ask(pod: Doc, path: str, port: int = 8000) -> str:
    """What the pod's program answers on the pod's own address."""
    url = f"http://{pod['status']['podIP']}:{port}{path}"
    return urllib3.request("GET", url, timeout=5, retries=False).data.decode()


def job(namespace: str, args: Sequence[str], *, policy: str = "Never", retries: int = 0) -> Doc:
    container = {"name": "main", "image": f"{SERVER}:v1", "args": list(args)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job", "namespace": namespace},
        "spec": {
            "backoffLimit": retries,
            "template": {"spec": {"restartPolicy": policy, "containers": [container]}},
        },
    }


def job_condition(rig: Rig, namespace: str) -> str:
    """Complete or Failed, as soon as the Job is one of them."""

    def ended() -> list[str]:
        status = rig.client().get(f"/apis/batch/v1/namespaces/{namespace}/jobs/job").get("status", {})
        return [
            each["type"]
            for each in status.get("conditions", [])
            if each["status"] == "True" and each["type"] in ("Complete", "Failed")
        ]

    return until("the job ends", ended)[0]


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


def epp_parts(namespace: str, config: str) -> list[Doc]:
    """A pool and its EPP as a chart writes them."""
    args = [
        "--pool-name=pool",
        f"--pool-namespace={namespace}",
        "--secure-serving=false",
        "--metrics-endpoint-auth=false",
        "--tracing=false",
        "--config-file=/etc/app/epp.yaml",
        "--grpc-health-port=9003",
    ]
    options = mounted("epp")
    options["container"] |= {
        "ports": [{"containerPort": 9002}, {"containerPort": 9003}, {"containerPort": 9090}],
        "readinessProbe": {"grpc": {"port": 9003, "service": "inference-extension"}, "periodSeconds": 2},
    }
    pool = {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": "pool", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": "engine"}},
            "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": "epp", "port": {"number": 9002}},
        },
    }
    return [
        pool,
        config_map(namespace, "epp", {"epp.yaml": config}),
        deployment(namespace, args, image=f"{EPP_IMAGE}:v1.5.0", **options),
    ]


EPP_CONFIG = """
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
  - pluginRef: max-score-picker
"""


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


def test_the_kinds_of_the_request_path_are_served(rig: Rig, namespace: str) -> None:
    objective = {
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceObjective",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": {"priority": -3, "poolRef": {"name": "pool"}},
    }
    stored = rig.client().create(objective)
    assert stored["spec"]["poolRef"] == {
        "group": "inference.networking.k8s.io",
        "kind": "InferencePool",
        "name": "pool",
    }
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "route", "namespace": namespace},
        "spec": {
            "rules": [
                {
                    "backendRefs": [
                        {
                            "name": "pool",
                            "weight": 3,
                            "kind": "InferencePool",
                            "group": "inference.networking.k8s.io",
                        }
                    ]
                }
            ]
        },
    }
    assert rig.client().create(route)["spec"]["rules"][0]["backendRefs"][0]["weight"] == 3
    scaler = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "scaler", "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"name": "app"},
            "triggers": [{"type": "cpu", "metadata": {"value": "1"}}],
        },
    }
    assert rig.client().create(scaler)["spec"]["scaleTargetRef"]["name"] == "app"


def test_a_program_beside_the_rig(rig: Rig, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    script = f"import pathlib, time; print('up'); pathlib.Path({str(flag)!r}).touch(); time.sleep(600)"
    rig.start_program("beside", [sys.executable, "-c", script], until_ready=flag.exists)
    assert "up" in rig.log("beside") and rig.gone() is None
    with pytest.raises(KeyError):
        rig.start_program("beside", ["true"])
    rig.stop_part("beside")
    assert "beside" not in rig.pids() and rig.gone() is None
    with pytest.raises(RigFailed, match="ended while waiting"):
        rig.start_program("short", [sys.executable, "-c", "print('no')"], until_ready=lambda: False)
    assert rig.gone() is None


def test_without_programs_nothing_is_needed() -> None:
    with Rig(nodes=NodePool(count=1), run_lws=False) as plain:
        assert "runner" not in plain.pids()
        with pytest.raises(ApiError) as unknown:
            plain.client().get("/apis/inference.networking.k8s.io/v1")
        assert unknown.value.status == 404


def test_an_extra_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match="knows no nothing"):
        build(extra=["nothing"])
