"""The `-prv` Service of a LeaderWorkerSet, as its controller would make it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.fleet.names import private_service_name

Json = dict[str, Any]


def service_for(live: Mapping[str, Any], lws: Mapping[str, Any]) -> Json:
    """The headless Service `<lws>-prv` as the controller would make it: same name, labels, selector and owner.

    rig.md 3: the controller accepts it, keeps it when the rollout ends, removes it when the old roles come back.
    """
    labels = {
        k: v for k, v in lws["metadata"]["labels"].items() if k.startswith("disaggregatedset.x-k8s.io/")
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": private_service_name(lws["metadata"]["name"]),
            "namespace": lws["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": live["apiVersion"],
                    "kind": live["kind"],
                    "name": live["metadata"]["name"],
                    "uid": live["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {"clusterIP": "None", "selector": labels},
    }
