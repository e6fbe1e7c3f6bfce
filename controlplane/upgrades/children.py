"""What the DisaggregatedSet controller makes of a role: the LeaderWorkerSet's template and the `-prv` Service."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from controlplane.upgrades.live import NAME_LABEL, REVISION_LABEL, ROLE_LABEL, SLICE_LABEL

Json = dict[str, Any]
INJECTED_LABELS = (NAME_LABEL, ROLE_LABEL, SLICE_LABEL, REVISION_LABEL, "app")


def child_matches(lws: Mapping[str, Any], role: Mapping[str, Any]) -> bool:
    """True when the LeaderWorkerSet carries the role's template, less what the controller puts in (digest 1.3, 4)."""
    return _stripped(lws["spec"]["leaderWorkerTemplate"]) == _stripped(role["spec"]["leaderWorkerTemplate"])


def _stripped(template: Mapping[str, Any]) -> Json:
    plain: Json = copy.deepcopy(dict(template))
    for name in ("leaderTemplate", "workerTemplate"):
        pod = plain.get(name)
        if not pod:
            plain.pop(name, None)
            continue
        metadata = pod.get("metadata") or {}
        labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k not in INJECTED_LABELS}
        annotations = metadata.get("annotations") or {}
        pod["metadata"] = {k: v for k, v in (("labels", labels), ("annotations", annotations)) if v}
        pod.get("spec", {}).pop("affinity", None)
    return plain


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
            "name": f"{lws['metadata']['name']}-prv",
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
