"""Record a set's objects from the rig: `python -m tests.controlplane.fleet.record`. Needs the rig's programs.

Writes recorded/*.json: {set, children, pods} as the API server gives them, less managedFields.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deploy.rig import Rig, workloads
from deploy.rig.api import ApiError, until

FOLDER = Path(__file__).parent / "recorded"
NAMESPACE, NAME = "llm", "chat"

# Everything that a trip through Go structs respells or drops.
TRICKY: dict[str, Any] = {
    "containers": [
        {
            "name": "engine",
            "image": "registry.example/engine:v1",
            "command": ["serve"],
            "args": ["--tensor-parallel-size=2", "--flag="],
            "env": [{"name": "EMPTY", "value": ""}, {"name": "TOKENS", "value": "4096"}],
            "ports": [{"containerPort": 8000}],
            "resources": {
                "limits": {"cpu": "1000m", "memory": "2048Mi", "nvidia.com/gpu": 1},
                "requests": {"cpu": "0.5", "memory": "1.5Gi"},
            },
            "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}, "initialDelaySeconds": 0},
            "volumeMounts": [{"name": "scratch", "mountPath": "/tmp", "readOnly": False}],
        }
    ],
    "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1024Mi"}}],
    "enableServiceLinks": False,
    "hostNetwork": False,
    "terminationGracePeriodSeconds": 0,
    "nodeSelector": {},
}


def main() -> None:
    """Run one rig and write what it shows."""
    FOLDER.mkdir(exist_ok=True)
    with Rig() as rig:
        client = rig.client()
        workloads.make_namespace(client, NAMESPACE)
        roles = [
            workloads.role("prefill", 2, size=2, pod=TRICKY, labels={"app": "mine", "team": "a"}),
            workloads.role("decode", 1, pod=TRICKY),
        ]
        until("admitted", lambda: _tried(rig, workloads.disaggregated_set(NAME, NAMESPACE, roles)))
        until("settled", lambda: _settled(client))
        _write(client, "settled")
        stored = client.get(workloads.set_path(NAMESPACE, NAME))
        for role in stored["spec"]["roles"]:
            pod = role["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
            pod["containers"][0]["image"] = "registry.example/engine:v2-never-ready"
        client.replace(stored)
        until("new pods run", lambda: len(workloads.pods_of(client, NAMESPACE, "")) >= 8, limit_s=60)
        _write(client, "waiting")
        victim = next(
            each
            for each in workloads.lws_of(client, NAMESPACE, NAME)
            if _is_new_decode(each, "v2-never-ready")
        )
        path = f"/apis/{workloads.LWS_GROUP}/namespaces/{NAMESPACE}/leaderworkersets/{victim['metadata']['name']}"
        client.delete(path)
        until("deleted", lambda: len(workloads.lws_of(client, NAMESPACE, NAME)) == 3, limit_s=60)
        _write(client, "wedged")


def _tried(rig: Rig, doc: dict[str, Any]) -> bool:
    try:
        rig.apply(doc)
    except ApiError as error:
        if error.status != 429:  # "storage is (re)initializing": CRDs are fresh
            raise
        return False
    return True


def _settled(client: Any) -> bool:
    try:
        return workloads.settled(client, NAMESPACE, NAME)
    except ApiError:
        return False


def _is_new_decode(child: dict[str, Any], tag: str) -> bool:
    image = child["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"]
    return child["metadata"]["labels"][workloads.ROLE_LABEL] == "decode" and image.endswith(tag)


def _write(client: Any, name: str) -> None:
    found = {
        "set": client.get(workloads.set_path(NAMESPACE, NAME)),
        "children": workloads.lws_of(client, NAMESPACE, NAME),
        "pods": workloads.pods_of(client, NAMESPACE, ""),
    }
    for item in [found["set"], *found["children"], *found["pods"]]:
        item["metadata"].pop("managedFields", None)
    (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"{name}: {len(found['children'])} children, {len(found['pods'])} pods")


if __name__ == "__main__":
    main()
