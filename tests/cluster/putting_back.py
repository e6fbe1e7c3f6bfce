"""What a restore writes beside the set, one write at a time: which right each of them needs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.fleet.connections import connect_cluster
from controlplane.holds.writer import SetWriter
from controlplane.kube.client import Kube
from controlplane.kube.errors import Denied
from controlplane.recovery.parts import contents, router, traffic
from controlplane.recovery.parts.task import Task
from controlplane.recovery.reading import read_seen, rules_of
from deploy.demo.gateway.manifests import http_route
from deploy.demo.router.manifests import inference_objective, router_objects
from deploy.rig import until
from tests.cluster.driving import Lockstep

Json = dict[str, Any]


def puts_back(resource: str, verb: str) -> Callable[..., str]:
    """A deed for tests/cluster/test_rbac.py: the one write of a restore that needs this right."""

    def deed(lockstep: Lockstep, namespace: str, make_set: Any, less: Callable[[], Any]) -> str:
        rig = lockstep.rig
        rig.apply(router_objects(release="chat", namespace=namespace, set_name="model"))
        rig.apply(http_route("chat", namespace, gateway="g", gateway_namespace=namespace, pools={"chat": 1}))
        rig.apply(inference_objective("batch", namespace, "chat", -1))
        with connect_cluster(lockstep.cluster) as kube:
            until("the router's pod", lambda: _document(kube, namespace)["pools"][0]["router"]["image_ids"])
            document = _document(kube, namespace)
            routes = read_seen(kube, namespace, "model", recorded=document).objects.routes
            drained = {f"{namespace}/chat": rules_of(routes[0])}
            with less(), pytest.raises(Denied) as refused:
                _write(resource, verb, _task(kube, namespace, document, drained))
        return refused.value.message

    return deed


def _document(kube: Kube, namespace: str) -> Json:
    """Everything but the set, which does not exist."""
    recorded: Json = {
        "pools": [{"name": "chat"}],
        "config_maps": {},
        "routes": [],
        "scalers": [],
        "workload": {"revision": "", "templates": "", "roles": []},
    }
    found = read_seen(kube, namespace, "model", recorded=recorded).document
    return {**found, "workload": recorded["workload"]}


def _task(kube: Kube, namespace: str, document: Json, drained: Json) -> Task:
    now = datetime.now(UTC)
    return Task(
        writer=SetWriter(kube, namespace, "model", "1", "U-0", "here", 1),
        document=document,
        memory={"drained": drained},
        now=now,
        since=now,
        step="1/1",
        stable_for=0.0,
        stuck_after=1.0,
        guards=(),
    )


def _write(resource: str, verb: str, task: Task) -> None:
    if resource == "deployments":
        task.document["pools"][0]["router"]["image"] = "registry.example/lockstep/router:other"
        router.put_router(task, pools=["chat"])
    elif resource == "httproutes":
        traffic.drain_traffic(task, pools=["chat"])
    else:
        wanted = task.document["objectives"][0]
        wanted["spec"] = {**wanted["spec"], "priority": 3}
        wanted["name"] = wanted["name"] if verb == "update" else "new"
        contents.put_objectives(task, names=[wanted["name"]])
