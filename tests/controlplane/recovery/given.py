"""A cluster row and documents of combinations, without a cluster."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from controlplane.audit.actor import worker
from controlplane.fleet.models import Cluster, Workload
from controlplane.fleet.target import templates_digest
from controlplane.operations.clock import database_now
from controlplane.recovery.models import Combination
from controlplane.recovery.services import store_combination
from tests.controlplane.upgrades.given import pair

Json = dict[str, Any]
ACTOR = worker("test")


def make_cluster(name: str = "north", environment: str = "staging", writes: str = "ours") -> Cluster:
    """A registered cluster."""
    now = database_now()
    return Cluster.objects.create(
        name=name, context=name, environment=environment, writes=writes, created_at=now, updated_at=now
    )


def make_workload(cluster: Cluster, *, uid: str = "uid-1", namespace: str = "serving") -> Workload:
    """The set serving/chat as observed."""
    return Workload.objects.create(
        cluster=cluster,
        uid=uid,
        namespace=namespace,
        name="chat",
        state="settled",
        observed_at=database_now(),
        observed_fence=1,
    )


def document(
    *, revision: str = "aaaa1111", text: str = "as it was", uid: str = "uid-1", **options: Any
) -> Json:
    """What a look at serving/chat says."""
    roles = pair(**options)
    return {
        "version": 1,
        "set": {"namespace": "serving", "name": "chat", "uid": uid},
        "workload": {
            "roles": roles,
            "slices": 1,
            "placement": None,
            "templates": templates_digest(roles),
            "revision": revision,
            "certain": True,
            "revisions": [revision],
            "images": {},
        },
        "config_maps": {"prompts": {"data": {"a.txt": text}, "binaryData": {}, "immutable": False}},
        "secrets": [{"name": "pull", "roles": ["decode"], "restored": "cannot be restored"}],
        "pools": [
            {
                "name": "front",
                "namespace": "serving",
                "uid": "pool-1",
                "router": {
                    "service": "front-epp",
                    "deployment": "front-epp",
                    "deployment_uid": "deployment-1",
                    "container": "epp",
                    "image": "router:1",
                    "image_ids": [],
                    "config": {
                        "kind": "config-map",
                        "name": "c",
                        "key": "k",
                        "text": "plugins",
                        "digest": "sha256:1",
                        "sure": True,
                    },
                    "problems": [],
                },
            }
        ],
        "objectives": [],
        "routes": [{"namespace": "serving", "name": "front", "uid": "route-1", "rules": []}],
        "scalers": [],
        "transfer": {},
        "unread": [],
    }


def stored(cluster: Cluster, *, verified: bool = True, **options: Any) -> Combination:
    """A stored combination."""
    found, _ = store_combination(
        cluster=cluster,
        document=deepcopy(document(**options)),
        reason="test",
        actor=ACTOR,
        evidence={"kind": "test", "id": 1} if verified else None,
    )
    return found
