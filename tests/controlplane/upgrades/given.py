"""A plan on a set as it might stand, without a database: what the verdict, bounds and steps are asked about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from controlplane.fleet.models import Cluster, Workload
from controlplane.fleet.target import templates_digest
from controlplane.holds.live import LiveSet, read_live
from controlplane.kube.client import Listing
from controlplane.kube.errors import ObjectMissing
from controlplane.kube.resources import Resource
from controlplane.upgrades.bounds import plan_digest
from controlplane.upgrades.diff import roles_diff
from controlplane.upgrades.models import Plan
from controlplane.upgrades.options import read_options
from controlplane.upgrades.secrecy import redacted
from controlplane.upgrades.surroundings import Surroundings
from controlplane.upgrades.verdict import PlanVerdict, judge
from tests.controlplane.fleet.world import make_child, make_set

Json = dict[str, Any]
SLICED = Path(__file__).parents[2] / "fixtures" / "sliced"
OLD = "aaaa1111"
PACE = {
    "type": "RollingUpdate",
    "rollingUpdateConfiguration": {"partition": 0, "maxSurge": 1, "maxUnavailable": 0},
}


class ObjectsKube:
    """Objects that can be read and nothing else."""

    def __init__(self, objects: Sequence[Json]) -> None:
        self.objects = list(objects)

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Json:
        """One object; ObjectMissing as from a server."""
        for item in self.objects:
            if item.get("kind") == resource.kind and item["metadata"]["name"] == name:
                return item
        raise ObjectMissing(f"{name} not found", status=404, details={"name": name})

    def list(self, resource: Resource, namespace: str | None = None, **_: Any) -> Listing:
        """All objects of a kind."""
        return Listing([item for item in self.objects if item.get("kind") == resource.kind], "1")


def role(
    name: str,
    replicas: int,
    *,
    image: str = "registry.example/engine@sha256:1",
    env: Json | None = None,
    pace: Json | None = None,
    **template: Any,
) -> Json:
    """One entry of spec.roles as the API server stores it."""
    container: Json = {
        "name": "engine",
        "image": image,
        "args": ["serve", "m"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    pod = {"metadata": {}, "spec": {"containers": [container], **template}}
    return {
        "name": name,
        "spec": {
            "replicas": replicas,
            "rolloutStrategy": pace or PACE,
            "leaderWorkerTemplate": {"size": 1, "workerTemplate": pod},
        },
    }


def pair(prefill: int = 4, decode: int = 2, **options: Any) -> list[Json]:
    """Prefill and decode."""
    return [role("prefill", prefill, **options), role("decode", decode, **options)]


def with_image(roles: Sequence[Json], image: str = "registry.example/engine@sha256:2") -> list[Json]:
    """The roles with another image."""
    changed = deepcopy(list(roles))
    for each in changed:
        each["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["image"] = image
    return changed


def live_set(
    roles: Sequence[Json], *, ready: dict[str, int] | None = None, extra: Sequence[Json] = ()
) -> LiveSet:
    """The set llm/chat with one revision at its size."""
    body = {**make_set(roles), "kind": "DisaggregatedSet", "apiVersion": "disaggregatedset.x-k8s.io/v1"}
    children = [
        {
            **make_child(each, OLD, each["spec"]["replicas"], ready=(ready or {}).get(each["name"])),
            "kind": "LeaderWorkerSet",
        }
        for each in roles
    ]
    more = [{**each, "kind": "LeaderWorkerSet"} for each in extra]
    return read_live(ObjectsKube([body, *children, *more]), "llm", "chat")  # type: ignore[arg-type]


def sliced(name: str) -> tuple[LiveSet, list[Json]]:
    """A recorded sliced set, and all recorded objects."""
    items: list[Json] = json.loads((SLICED / f"{name}.json").read_text())["items"]
    body = next(item for item in items if item["kind"] == "DisaggregatedSet")
    metadata = body["metadata"]
    return read_live(ObjectsKube(items), metadata["namespace"], metadata["name"]), items  # type: ignore[arg-type]


def plan_for(
    live: LiveSet, *, environment: str = "production", version: str = "0.9.0", **options: Any
) -> Plan:
    """An unsaved plan on the set."""
    metadata = live.body["metadata"]
    cluster = Cluster(name="c", environment=environment, lws_version=version)
    workload = Workload(
        cluster=cluster, namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"]
    )
    return Plan(pk=1, workload=workload, title="t", options=read_options(options, stable_for=30))


ROOMY = Surroundings(
    nodes=tuple(
        {
            "kind": "Node",
            "metadata": {"name": f"gpu-{number}", "labels": {"kubernetes.io/hostname": f"gpu-{number}"}},
            "spec": {},
            "status": {
                "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for number in range(8)
    ),
    pods=(),
    quotas=(),
    scalers=(),
    unread=(),
)


def verdict(
    live: LiveSet,
    after: Sequence[Json],
    *,
    written: Sequence[Json] | None = None,
    around: Surroundings = ROOMY,
    plan: Plan | None = None,
    **options: Any,
) -> PlanVerdict:
    """What the check says about writing `after`."""
    found = plan or plan_for(live, **options)
    return judge(found, live, live.roles, list(after), list(written or after), around)


def checked(live: LiveSet, after: Sequence[Json], **options: Any) -> Plan:
    """The plan with everything that a check stores on it, digest included."""
    plan = plan_for(live, **options)
    said = verdict(live, after, plan=plan)
    before, shown = redacted(live.roles, plan_id=1), redacted(list(after), plan_id=1)
    plan.content = {
        "roles_before": live.roles,
        "roles_after": list(after),
        "roles_final": list(after),
        "diff": roles_diff(before, shown),
        "templates_digest": templates_digest(shown),
    }
    plan.base = {
        "uid": plan.workload.uid,
        "templates": templates_digest(before),
        "pace": [each["spec"].get("rolloutStrategy") for each in live.roles],
        "slices": live.slices,
        "placement": live.body["spec"].get("placementPolicy"),
        "revision": said.revision,
        "images": {},
    }
    plan.rows, plan.hazards, plan.bounds = said.rows, said.hazards, said.bounds.as_json()
    plan.digest = plan_digest(plan.content, plan.base, plan.bounds)
    return plan
