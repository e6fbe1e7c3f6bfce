"""The objects of one router as the llm-d charts render them, and the pool and objectives beside it.

One thing is done the way Lockstep pushes a configuration, not the way the charts do: the ConfigMap is immutable and has
the hash of its content in its name, so that a new configuration is a new pod template and the old one stays to go back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from deploy.demo.router.config import example_config

Doc = dict[str, Any]

IMAGE = "registry.example/lockstep/router:0.1.0"
CONFIG_KEY = "lockstep.yaml"
POLICY_HASH = "lockstep.dev/policy-hash"
GRPC_PORT, HEALTH_PORT, METRICS_PORT = 9002, 9003, 9090
_READ = ("get", "watch", "list")
_MODE = "llm-d-router-gateway"


def epp_name(release: str) -> str:
    """Name of a release's router objects: the release in lower case, cut to 40 characters, and "-epp"."""
    return release.lower()[:40].rstrip("-") + "-epp"


def config_digest(config: str) -> str:
    """SHA-256 of a configuration's text, in hex; its start names the ConfigMap."""
    return hashlib.sha256(config.encode()).hexdigest()


def config_map(release: str, namespace: str, config: str) -> Doc:
    """The immutable ConfigMap of one configuration, named by its content."""
    name = f"{epp_name(release)}-{config_digest(config)[:8]}"
    meta = {"name": name, "namespace": namespace, "labels": _labels(release)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "immutable": True,
        "data": {CONFIG_KEY: config},
    }


def router_objects(
    *,
    release: str,
    namespace: str,
    set_name: str,
    config: str | None = None,
    image: str = IMAGE,
    target_port: int = 8000,
    failure_mode: str = "FailOpen",
    pool_labels: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> list[Doc]:
    """ServiceAccount, roles and bindings, ConfigMap, Service, InferencePool and Deployment, in the order to apply.

    The pool has the release's name; by default it selects the leaders of the set's groups, in all roles. `config`
    defaults to `example_config(set_name)`; `flags` are added to the charts' arguments and win over them.
    """
    text = example_config(set_name) if config is None else config
    labels = pool_labels or {
        "disaggregatedset.x-k8s.io/name": set_name,
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }
    return [
        *access(release, namespace),
        config_map(release, namespace, text),
        _service(release, namespace),
        inference_pool(
            release, namespace, labels, router=epp_name(release), port=target_port, failure_mode=failure_mode
        ),
        _deployment(release, namespace, text, image, flags or {}),
    ]


def access(release: str, namespace: str) -> list[Doc]:
    """The router's service account and what it may read: pods, objectives and rewrites of both groups, pools."""
    name = epp_name(release)
    groups = ["llm-d.ai", "inference.networking.x-k8s.io"]
    rules = {
        "sa": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(_READ)}],
        "non-sa": [
            {
                "apiGroups": groups,
                "resources": ["inferenceobjectives", "inferencemodelrewrites"],
                "verbs": list(_READ),
            },
            {
                "apiGroups": ["inference.networking.k8s.io"],
                "resources": ["inferencepools"],
                "verbs": list(_READ),
            },
        ],
    }
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    docs = [_object("v1", "ServiceAccount", release, name, namespace)]
    for kind, listed in rules.items():
        role = f"{name}-{kind}"
        rbac = "rbac.authorization.k8s.io"
        docs.append(_object(f"{rbac}/v1", "Role", release, role, namespace, rules=listed))
        ref = {"apiGroup": rbac, "kind": "Role", "name": role}
        binding = _object(
            f"{rbac}/v1", "RoleBinding", release, role, namespace, roleRef=ref, subjects=[account]
        )
        docs.append(binding)
    return docs


def inference_pool(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    *,
    router: str,
    port: int = 8000,
    failure_mode: str = "FailOpen",
) -> Doc:
    """An InferencePool v1 over pods with these labels, answered for by the router Service of that name."""
    picker = {"name": router, "port": {"number": GRPC_PORT}, "failureMode": failure_mode}
    spec = {
        "selector": {"matchLabels": dict(labels)},
        "targetPorts": [{"number": port}],
        "endpointPickerRef": picker,
    }
    return _object("inference.networking.k8s.io/v1", "InferencePool", name, name, namespace, spec=spec)


def inference_objective(
    name: str, namespace: str, pool: str, priority: int, *, group: str = "llm-d.ai/v1alpha2"
) -> Doc:
    """An InferenceObjective of a pool; `group` as the cluster serves it."""
    spec = {"priority": priority, "poolRef": {"group": "inference.networking.k8s.io", "name": pool}}
    return _object(group, "InferenceObjective", pool, name, namespace, spec=spec)


def _object(version: str, kind: str, release: str, name: str, namespace: str, **more: Any) -> Doc:
    meta = {"name": name, "namespace": namespace, "labels": _labels(release)}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}


def _labels(release: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": epp_name(release),
        "app.kubernetes.io/version": "0.1.0",
        "llm-d.ai/igw-mode": _MODE,
    }


def _selector(release: str) -> dict[str, str]:
    return {_MODE: epp_name(release)}


def _service(release: str, namespace: str) -> Doc:
    ports = [
        {"name": "grpc-ext-proc", "port": GRPC_PORT, "protocol": "TCP", "appProtocol": "kubernetes.io/h2c"},
        {"name": "http-metrics", "port": METRICS_PORT, "protocol": "TCP"},
    ]
    spec = {"selector": _selector(release), "ports": ports, "type": "ClusterIP"}
    return _object("v1", "Service", release, epp_name(release), namespace, spec=spec)


def _deployment(release: str, namespace: str, config: str, image: str, flags: Mapping[str, str]) -> Doc:
    name = epp_name(release)
    template = {
        "metadata": {
            "labels": {**_labels(release), **_selector(release)},
            "annotations": {POLICY_HASH: config_digest(config)},
        },
        "spec": {
            "serviceAccountName": name,
            "terminationGracePeriodSeconds": 130,
            "containers": [_container(release, namespace, image, flags)],
            "volumes": [
                {
                    "name": "plugins-config-volume",
                    "configMap": {"name": f"{name}-{config_digest(config)[:8]}"},
                }
            ],
        },
    }
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _selector(release)},
        "template": template,
    }
    return _object("apps/v1", "Deployment", release, name, namespace, spec=spec)


def _container(release: str, namespace: str, image: str, flags: Mapping[str, str]) -> Doc:
    ports = {"grpc": GRPC_PORT, "grpc-health": HEALTH_PORT, "metrics": METRICS_PORT}
    given = {
        "allow-experimental-plugins": "true",
        "secure-serving": "false",
        "metrics-endpoint-auth": "false",
        **flags,
    }
    probe = {"grpc": {"port": HEALTH_PORT, "service": "inference-extension"}}
    fields = {"NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
    return {
        "name": "epp",
        "image": image,
        "args": [
            *("--pool-name", release),
            *("--pool-namespace", namespace),
            *("--zap-encoder", "json"),
            *("--config-file", f"/config/{CONFIG_KEY}"),
            *("--grpc-health-port", str(HEALTH_PORT)),
            *(f"--{key}={value}" for key, value in given.items()),
            "--tracing=false",
        ],
        "ports": [{"name": key, "containerPort": value} for key, value in ports.items()],
        "env": [
            {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()
        ],
        "livenessProbe": {**probe, "initialDelaySeconds": 5, "periodSeconds": 10},
        "readinessProbe": {**probe, "periodSeconds": 2},
        "volumeMounts": [{"name": "plugins-config-volume", "mountPath": "/config"}],
    }
