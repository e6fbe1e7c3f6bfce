"""DisaggregatedSets for the rig as documents, and looks at what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.rig.api import STRATEGIC, Api, until

Doc = dict[str, Any]

GROUP = "disaggregatedset.x-k8s.io/v1"
NAME_LABEL = "disaggregatedset.x-k8s.io/name"
ROLE_LABEL = "disaggregatedset.x-k8s.io/role"
REVISION_LABEL = "disaggregatedset.x-k8s.io/revision"
SLICE_LABEL = "disaggregatedset.x-k8s.io/slice"
LWS_GROUP = "leaderworkerset.x-k8s.io/v1"


def role(
    name: str,
    replicas: int,
    *,
    image: str = "registry.example/engine:v1",
    args: Sequence[str] = (),
    env: Mapping[str, str | Mapping[str, Any]] | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    gpus: int = 1,
    size: int = 1,
    surge: int | str = 1,
    unavailable: int | str = 0,
    restart_policy: str | None = None,
    pod: Mapping[str, Any] | None = None,
) -> Doc:
    """One entry of ``spec.roles``: ``replicas`` groups of ``size`` pods with ``gpus`` GPUs each.

    ``pod`` is merged over the pod spec (node selectors, tolerations, ...); ``annotations`` can choose a
    behaviour. A value of ``env`` that is no text is its ``valueFrom``.
    """
    container: Doc = {"name": "engine", "image": image, "args": list(args)}
    if env:
        container["env"] = [
            {"name": key, "value": value}
            if isinstance(value, str)
            else {"name": key, "valueFrom": dict(value)}
            for key, value in env.items()
        ]
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    template: Doc = {
        "metadata": {"labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": {"containers": [container], **(pod or {})},
    }
    groups: Doc = {"size": size, "workerTemplate": template}
    if restart_policy:
        groups["restartPolicy"] = restart_policy
    pace = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {
        "name": name,
        "spec": {
            "replicas": replicas,
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": pace},
            "leaderWorkerTemplate": groups,
        },
    }


def disaggregated_set(
    name: str,
    namespace: str,
    roles: Sequence[Doc] | None = None,
    *,
    slices: int | None = None,
    **options: Any,
) -> Doc:
    """A whole set; without ``roles`` 4 prefill and 2 decode groups with ``options`` (see :func:`role`)."""
    entries = (
        list(roles) if roles is not None else [role("prefill", 4, **options), role("decode", 2, **options)]
    )
    spec: Doc = {"roles": entries}
    if slices is not None:
        spec["slices"] = slices
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": GROUP, "kind": "DisaggregatedSet", "metadata": metadata, "spec": spec}


def set_path(namespace: str, name: str) -> str:
    """The URL path of a DisaggregatedSet."""
    return f"/apis/{GROUP}/namespaces/{namespace}/disaggregatedsets/{name}"


def lws_of(client: Api, namespace: str, name: str) -> list[Doc]:
    """The LeaderWorkerSets of a set, all slices, revisions and roles."""
    return client.items(
        f"/apis/{LWS_GROUP}/namespaces/{namespace}/leaderworkersets", selector=f"{NAME_LABEL}={name}"
    )


def pods_of(client: Api, namespace: str, selector: str) -> list[Doc]:
    """The pods that a label selector finds."""
    return client.items(f"/api/v1/namespaces/{namespace}/pods", selector=selector)


def is_ready(pod: Doc) -> bool:
    """Whether a pod's Ready condition is True."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def settled(client: Api, namespace: str, name: str) -> bool:
    """One revision only, every role at its size, every group ready (from child objects: for any version)."""
    stored = client.get(set_path(namespace, name))
    slices = stored["spec"].get("slices", 1)
    wanted = {entry["name"]: entry["spec"].get("replicas", 1) * slices for entry in stored["spec"]["roles"]}
    children = lws_of(client, namespace, name)
    if len({child["metadata"]["labels"][REVISION_LABEL] for child in children}) != 1:
        return False
    have = dict.fromkeys(wanted, 0)
    for child in children:
        size, status = child["spec"]["replicas"], child.get("status", {})
        if status.get("readyReplicas", 0) != size or status.get("replicas", 0) != size:
            return False
        have[child["metadata"]["labels"][ROLE_LABEL]] += size
    return have == wanted


def wait_settled(client: Api, namespace: str, name: str, *, limit_s: float = 60.0) -> str:
    """Wait until a set is :func:`settled`; returns its revision label. TimeoutError after ``limit_s`` s."""
    until(f"{namespace}/{name} settled", lambda: settled(client, namespace, name), limit_s=limit_s)
    label: str = lws_of(client, namespace, name)[0]["metadata"]["labels"][REVISION_LABEL]
    return label


def set_pods_ready(client: Api, namespace: str, selector: str, *, ready: bool) -> list[str]:
    """Flip the readiness of running pods, as a readiness probe would; returns the names of the pods.

    It stays so until it is flipped back: only the behaviour "flicker" writes readiness again.
    """
    names = []
    for pod in pods_of(client, namespace, selector):
        set_pod_ready(client, pod, ready=ready)
        names.append(pod["metadata"]["name"])
    return names


def set_pod_ready(client: Api, pod: Doc, *, ready: bool) -> None:
    """Flip one pod; ``pod`` is the object as read."""
    metadata = pod["metadata"]
    condition = {"status": str(ready), "reason": None if ready else "ContainersNotReady"}
    status = {
        "conditions": [{"type": "Ready", **condition}, {"type": "ContainersReady", **condition}],
        # started stays true: a late pod's stage acts only on containers that have not started.
        "containerStatuses": [
            {**each, "ready": ready, "started": True} for each in pod["status"].get("containerStatuses", [])
        ],
    }
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    client.patch(path, {"metadata": {"uid": metadata["uid"]}, "status": status}, content_type=STRATEGIC)


def make_namespace(client: Api, name: str, *, labels: Mapping[str, str] | None = None) -> str:
    """Create a namespace and wait until pods can be made in it (their default service account exists)."""
    client.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}
    )
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    until(f"service account of {name}", lambda: client.items(accounts))
    return name
