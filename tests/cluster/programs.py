"""What tests of programs in place of containers share: a program, documents that run it, looks at its pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import urllib3

from deploy.rig import Rig, until
from deploy.rig.programs import EPP_IMAGE
from deploy.rig.workloads import is_ready, pods_of

Doc = dict[str, Any]
SERVER = "registry.example/server"

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
