"""Which pods are scraped where, and under which labels, by the recipes that are shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.demo.metrics.__main__ import recipe
from deploy.demo.metrics.discovery import pod_labels, read_jobs
from deploy.demo.metrics.relabel import read_rules, relabelled
from deploy.rig.prometheus import default_scrape_configs

SHIPPED = Path(__file__).resolve().parents[3] / "deploy" / "target" / "scrape.yaml"
SET = "disaggregatedset.x-k8s.io/"
Doc = dict[str, Any]


def pod(
    name: str, *containers: Doc, labels: Doc | None = None, address: str = "127.3.0.1", **more: Any
) -> Doc:
    """A pod that runs."""
    return {
        "metadata": {"name": name, "namespace": "llm", "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"nodeName": "node-1", "containers": list(containers), **more.pop("spec", {})},
        "status": {"podIP": address, "phase": "Running", **more},
    }


def engine(name: str, *ports: Doc, worker: str = "0", **more: Any) -> Doc:
    labels = {
        f"{SET}name": "chat",
        f"{SET}role": "decode",
        f"{SET}revision": "aaaa1111",
        "leaderworkerset.sigs.k8s.io/worker-index": worker,
    }
    labels |= more.pop("labels", {})
    return pod(name, {"name": "engine", "ports": list(ports)}, labels=labels, **more)


def found(jobs: list[Doc], *pods: Doc) -> dict[str, Doc]:
    """Labels by URL."""
    targets = [one for job in read_jobs(jobs) for one in job.targets(pods).values()]
    assert len({one.url for one in targets}) == len(targets)
    return {one.url: dict(one.labels) for one in targets}


def test_the_rigs_recipe() -> None:
    routers = {"name": "epp", "ports": [{"containerPort": 9002}, {"containerPort": 9090}]}
    shown = found(
        default_scrape_configs(),
        engine("p0"),
        engine(
            "p1",
            {"containerPort": 8200},
            {"containerPort": 5600},
            address="127.3.0.2",
            labels={f"{SET}slice": "3"},
        ),
        engine("worker", worker="1", address="127.3.0.3"),
        engine("young", address=""),
        pod("router", routers, address="127.3.0.4"),
    )
    assert shown == {
        "http://127.3.0.1:8000/metrics": {
            **{
                "job": "engines",
                "instance": "127.3.0.1:8000",
                "namespace": "llm",
                "pod": "p0",
                "node": "node-1",
            },
            **{"set": "chat", "slice": "0", "role": "decode", "revision": "aaaa1111"},
        },
        "http://127.3.0.2:8000/metrics": {
            **{
                "job": "engines",
                "instance": "127.3.0.2:8000",
                "namespace": "llm",
                "pod": "p1",
                "node": "node-1",
            },
            **{"set": "chat", "slice": "3", "role": "decode", "revision": "aaaa1111"},
        },
        "http://127.3.0.4:9090/metrics": {
            **{
                "job": "routers",
                "instance": "127.3.0.4:9090",
                "namespace": "llm",
                "pod": "router",
                "node": "node-1",
            },
        },
    }


def test_the_shipped_recipe() -> None:
    ports = ({"name": "modelserver", "containerPort": 8200}, {"name": "nixl", "containerPort": 5600})
    sidecar = {"initContainers": [{"name": "sidecar", "ports": [{"name": "metrics", "containerPort": 8000}]}]}
    router = {"name": "epp", "ports": [{"name": "metrics", "containerPort": 9090}]}
    shown = found(
        recipe(SHIPPED),
        engine("plain"),
        engine("declared", *ports, address="127.3.0.2", spec=sidecar),
        engine("six", address="fd00::12ab"),
        engine("done", phase="Succeeded", address="127.3.0.4"),
        pod("epp", router, labels={"llm-d-router-gateway": "x"}, address="127.3.0.5"),
        pod("stranger", router, address="127.3.0.6"),
    )
    assert {url: (one["job"], one["pod"]) for url, one in shown.items()} == {
        "http://127.3.0.1:8000/metrics": ("lockstep-engines", "plain"),
        "http://127.3.0.2:8200/metrics": ("lockstep-engines", "declared"),
        "http://[fd00::12ab]:8000/metrics": ("lockstep-engines", "six"),
        "http://127.3.0.5:9090/metrics": ("lockstep-routers", "epp"),
    }


def test_what_discovery_tells_of_a_pod() -> None:
    document = pod(
        "p", {"name": "c", "image": "i", "ports": [{"containerPort": 80, "name": "web", "protocol": "TCP"}]}
    )
    document["metadata"] |= {
        "labels": {"a.b/c-d": "1"},
        "annotations": {"note": "two"},
        "ownerReferences": [{"kind": "StatefulSet", "name": "s", "controller": True}],
    }
    document["status"] |= {
        "hostIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "c", "containerID": "containerd://1"}],
    }
    (shown,) = pod_labels(document)
    kube = "__meta_kubernetes_"
    assert shown == {
        "__address__": "127.3.0.1:80",
        f"{kube}namespace": "llm",
        f"{kube}pod_name": "p",
        f"{kube}pod_ip": "127.3.0.1",
        f"{kube}pod_ready": "true",
        f"{kube}pod_phase": "Running",
        f"{kube}pod_node_name": "node-1",
        f"{kube}pod_host_ip": "10.0.0.1",
        f"{kube}pod_uid": "uid-p",
        f"{kube}pod_controller_kind": "StatefulSet",
        f"{kube}pod_controller_name": "s",
        f"{kube}pod_label_a_b_c_d": "1",
        f"{kube}pod_labelpresent_a_b_c_d": "true",
        f"{kube}pod_annotation_note": "two",
        f"{kube}pod_annotationpresent_note": "true",
        f"{kube}pod_container_name": "c",
        f"{kube}pod_container_image": "i",
        f"{kube}pod_container_id": "containerd://1",
        f"{kube}pod_container_init": "false",
        f"{kube}pod_container_port_name": "web",
        f"{kube}pod_container_port_number": "80",
        f"{kube}pod_container_port_protocol": "TCP",
    }


def test_namespaces_and_intervals_of_a_job() -> None:
    job = {"job_name": "own", "scrape_interval": "5s", "scrape_timeout": "3s"}
    job |= {"kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": ["other"]}}]}
    (read,) = read_jobs([job])
    assert (read.interval_s, read.timeout_s, read.namespaces) == (5.0, 3.0, frozenset({"other"}))
    assert read.targets([pod("p", {"name": "c"})]) == {}
    (faster,) = read_jobs([job], interval_s=0.5)
    assert (faster.interval_s, faster.timeout_s) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("rule", "labels"),
    [
        ({"source_labels": ["a", "b"], "target_label": "c"}, {"a": "1", "b": "2", "c": "1;2"}),
        (
            {"source_labels": ["a"], "regex": "(.)", "target_label": "x_$1", "replacement": "${1}y"},
            {"a": "1", "b": "2", "x_1": "1y"},
        ),
        ({"source_labels": ["none"], "target_label": "a"}, {"b": "2"}),
        ({"source_labels": ["none"], "regex": "(.+)", "target_label": "a"}, {"a": "1", "b": "2"}),
        ({"target_label": "c", "replacement": "0"}, {"a": "1", "b": "2", "c": "0"}),
        ({"source_labels": ["a"], "target_label": "1$1"}, {"a": "1", "b": "2"}),
        ({"source_labels": ["a"], "regex": "2", "action": "keep"}, None),
        ({"source_labels": ["a"], "regex": "2", "action": "drop"}, {"a": "1", "b": "2"}),
    ],
)
def test_rules(rule: Doc, labels: Doc | None) -> None:
    assert relabelled({"a": "1", "b": "2"}, read_rules([rule])) == labels


@pytest.mark.parametrize(
    "change",
    [
        {"honor_labels": True},
        {"scheme": "https"},
        {"authorization": {"credentials": "x"}},
        {"relabel_configs": [{"action": "labelmap", "regex": "(.+)"}]},
        {"relabel_configs": [{"action": "keep", "regex": "(?i)x", "source_labels": ["a"]}]},
        {"kubernetes_sd_configs": [{"role": "endpoints"}]},
        {"scrape_interval": "soon"},
        {"job_name": ""},
    ],
)
def test_a_recipe_that_would_be_followed_differently_is_refused(change: Doc) -> None:
    with pytest.raises(ValueError, match="."):
        read_jobs([{"job_name": "x", **change}])


def test_a_file_without_jobs_is_no_recipe(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump({"scrape": []}))
    with pytest.raises(ValueError, match="scrape_configs"):
        recipe(path)
