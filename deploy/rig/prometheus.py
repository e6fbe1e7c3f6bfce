"""Prometheus on the rig: what it scrapes, its configuration, its rights."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

Doc = dict[str, Any]
ENGINE_PORT = 8000
ROUTER_METRICS_PORT = 9090
INTERVAL = "1s"

_LABEL = "__meta_kubernetes_pod_label_"
_SET = _LABEL + "disaggregatedset_x_k8s_io_"


def default_scrape_configs(*, interval: str = INTERVAL) -> list[Doc]:
    """Two jobs, to be used anywhere: engines by set, slice, role and revision, and routers by their metrics port.

    Their service discovery names no API server: that is the cluster in which Prometheus runs, unless
    :func:`configuration` fills in another. Revisions and roles are labels of pods, which no engine puts on its
    series; they are relabelled, for meta labels are gone by the time of ``metric_relabel_configs``.
    """
    named = [_copied(_SET + name, name) for name in ("role", "revision")]
    engines = [
        _keep(_SET + "name", ".+"),
        # The other pods of a group serve no metrics and would count as down for ever.
        _keep(_LABEL + "leaderworkerset_sigs_k8s_io_worker_index", "0"),
        _at(ENGINE_PORT),
        _copied(_SET + "name", "set"),
        # LeaderWorkerSet 0.9.0 has no slices.
        {"target_label": "slice", "replacement": "0"},
        {**_copied(_SET + "slice", "slice"), "regex": "(.+)"},
        *named,
    ]
    routers = [
        _keep("__meta_kubernetes_pod_container_port_number", str(ROUTER_METRICS_PORT)),
        _at(ROUTER_METRICS_PORT),
    ]
    return [_job("engines", engines, interval), _job("routers", routers, interval)]


def configuration(scrape_configs: Sequence[Doc], kubeconfig: Path) -> str:
    """Prometheus's configuration file; discovery that names no API server is led to that of ``kubeconfig``."""
    stored = yaml.safe_load(kubeconfig.read_text())
    cluster = stored["clusters"][0]["cluster"]
    way = {
        "api_server": cluster["server"],
        "tls_config": {"ca": base64.b64decode(cluster["certificate-authority-data"]).decode()},
        "authorization": {"credentials": stored["users"][0]["user"]["token"]},
    }
    configs = deepcopy(list(scrape_configs))
    for config in configs:
        for found in config.get("kubernetes_sd_configs", []):
            if "api_server" not in found:
                found.update(way)
    return yaml.safe_dump(
        {"global": {"scrape_interval": INTERVAL}, "scrape_configs": configs}, sort_keys=False
    )


def rights(user: str) -> list[Doc]:
    """What discovery by pods needs: to get, list and watch them, everywhere."""
    group = "rbac.authorization.k8s.io"
    metadata = {"name": "rig-prometheus"}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": metadata["name"]},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    ]


def command(binary: Path, folder: Path, config: str, port: int) -> list[str | Path]:
    """The command line; the configuration is written into ``folder``, where the samples go too."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "prometheus.yaml"
    path.touch(mode=0o600)  # there is a token in it
    path.write_text(config)
    return [
        binary,
        f"--config.file={path}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=2h",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]


def _job(name: str, relabel: list[Doc], interval: str) -> Doc:
    where = [
        _copied("__meta_kubernetes_namespace", "namespace"),
        _copied("__meta_kubernetes_pod_name", "pod"),
        _copied("__meta_kubernetes_pod_node_name", "node"),
    ]
    return {
        "job_name": name,
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "kubernetes_sd_configs": [{"role": "pod"}],
        "relabel_configs": [*relabel, *where],
    }


def _keep(label: str, regex: str) -> Doc:
    return {"source_labels": [label], "regex": regex, "action": "keep"}


def _copied(label: str, target: str) -> Doc:
    return {"source_labels": [label], "target_label": target}


def _at(port: int) -> Doc:
    """Scrape the pod's own address; a pod that has none yet stays away."""
    return {
        "source_labels": ["__meta_kubernetes_pod_ip"],
        "regex": "(.+)",
        "target_label": "__address__",
        "replacement": f"$1:{port}",
    }
