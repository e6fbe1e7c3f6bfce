"""Role scalers on the rig, whose LeaderWorkerSet manager (0.9.0) knows none.

The manager that makes them is on no registry, so its kind is written here in words of our own, after what was read in
its source (main of 2026-08-21): namespaced, `<set>-<role>`, owned by the set, labels name and role; `spec.replicas` is
0 or more, 0 by default; `/scale` shows the groups of all revisions as status.replicas, and a selector of leaders. Roles
of a set get the field `scaling.mode` (Static or External), which 0.9.0 leaves alone.

That manager gives a role that is External what its scaler asks for; 0.9.0 goes by the role's own number, so tests keep
the two equal. Lockstep is proved on a real API server, with the real HPA controller on `/scale`; the manager is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from deploy.rig import Api, Rig, until, workloads
from tests.cluster.midway import V1
from tests.cluster.scalers import owner_of

Json = dict[str, Any]
GROUP, KIND = "disaggregatedset.x-k8s.io", "DisaggregatedSetRoleScaler"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_COUNT = {"type": "integer", "format": "int32", "minimum": 0}
_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def role_scaler_kind() -> Json:
    """The custom resource definition."""
    status = {
        "replicas": _COUNT,
        "selector": {"type": "string"},
        "conditions": {"type": "array", "items": _OBJECT},
    }
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"replicas": {**_COUNT, "default": 0}}},
            "status": {"type": "object", "properties": status},
        },
    }
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": f"{KIND.lower()}s",
        "singular": KIND.lower(),
        "shortNames": ["dsrs"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@contextmanager
def role_scalers_on(rig: Rig) -> Iterator[None]:
    """The cluster serves role scalers and keeps `scaling` of roles; as before afterwards."""
    client, kind = rig.client(), role_scaler_kind()
    path, sets = f"{CRDS}/{kind['metadata']['name']}", f"{CRDS}/disaggregatedsets.{GROUP}"
    before = client.get(sets)["spec"]
    newer = deepcopy(before)
    for version in newer["versions"]:
        roles = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["roles"]
        mode = {"type": "string", "enum": ["Static", "External"], "default": "Static"}
        roles["items"]["properties"]["scaling"] = {"type": "object", "properties": {"mode": mode}}
    rig.apply(kind)
    client.patch(sets, {"spec": newer})
    try:
        until("role scalers to be served", lambda: _established(client, path))
        until("roles to keep how they are scaled", lambda: _keeps(client))
        yield
    finally:
        client.patch(sets, {"spec": before})
        client.delete(path)


def _established(client: Api, path: str) -> bool:
    conditions = client.get(path).get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _keeps(client: Api) -> bool:
    probe = workloads.disaggregated_set("scaling-probe", "default", roles=external_roles())
    made = client.request("POST", client.collection(probe), probe, query={"dryRun": "All"})
    return "scaling" in made["spec"]["roles"][1]


def external_roles(image: str = V1) -> list[Json]:
    """2 prefill groups, and 2 decode groups that are sized from outside."""
    decode = workloads.role("decode", 2, image=image)
    return [workloads.role("prefill", 2, image=image), {**decode, "scaling": {"mode": "External"}}]


def make_role_scaler(client: Api, namespace: str) -> Json:
    """The scaler of the role decode, as the newer manager makes it: it asks for what stands."""
    live = client.get(workloads.set_path(namespace, "model"))
    labels = {workloads.NAME_LABEL: "model", workloads.ROLE_LABEL: "decode"}
    made = client.create(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": KIND,
            "metadata": {
                "name": "model-decode",
                "namespace": namespace,
                "labels": labels,
                "ownerReferences": [{**owner_of(live), "blockOwnerDeletion": True}],
            },
            "spec": {"replicas": 2},
        }
    )
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    status = {"replicas": 2, "selector": f"{selector},leaderworkerset.sigs.k8s.io/worker-index=0"}
    return client.patch(f"{client.path(made)}/status", {"status": status})


def on_role(kind: str, namespace: str, *, api: str, **spec: Any) -> Json:
    """A scaler on the role decode."""
    target = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "name": "model-decode"}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": "busy", "namespace": namespace, "annotations": {"team": "serving"}},
        "spec": {"scaleTargetRef": target, **spec},
    }
