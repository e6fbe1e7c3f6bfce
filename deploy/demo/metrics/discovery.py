"""What is scraped: pods as Kubernetes' discovery tells them, relabelled by the jobs of a scrape configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.demo.metrics.relabel import Rule, read_rules, relabelled

Doc = dict[str, Any]
Labels = dict[str, str]
_META = "__meta_kubernetes_"
_POD = f"{_META}pod_"
_JOB_KEYS = {
    "job_name",
    "scrape_interval",
    "scrape_timeout",
    "metrics_path",
    "scheme",
    "kubernetes_sd_configs",
    "static_configs",
    "relabel_configs",
}
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A target: the labels of its series, where it is scraped, and what was known of it before relabelling."""

    job: str
    labels: tuple[tuple[str, str], ...]
    url: str
    interval_s: float
    timeout_s: float
    discovered: tuple[tuple[str, str], ...]

    @property
    def key(self) -> tuple[object, ...]:
        """Two with the same key are one."""
        return self.job, self.labels, self.url


@dataclass(frozen=True, slots=True)
class Job:
    """One entry of `scrape_configs`. ``namespaces`` None: no pods; empty: those of all namespaces."""

    name: str
    interval_s: float
    timeout_s: float
    path: str
    rules: tuple[Rule, ...]
    static: tuple[Labels, ...]
    namespaces: frozenset[str] | None

    def targets(self, pods: Iterable[Doc]) -> dict[tuple[object, ...], Wanted]:
        """Its targets by their keys."""
        found = list(self.static)
        if self.namespaces is not None:
            chosen = (
                pod for pod in pods if not self.namespaces or pod["metadata"]["namespace"] in self.namespaces
            )
            found += [labels for pod in chosen for labels in pod_labels(pod)]
        wanted = (self._target(labels) for labels in found)
        return {one.key: one for one in wanted if one is not None}

    def _target(self, discovered: Labels) -> Wanted | None:
        known = {
            "job": self.name,
            "__scrape_interval__": _duration_text(self.interval_s),
            "__scrape_timeout__": _duration_text(self.timeout_s),
            "__metrics_path__": self.path,
            "__scheme__": "http",
        }
        before = {**known, **{name: value for name, value in discovered.items() if value}}
        labels = relabelled(before, self.rules)
        if labels is None or not labels.get("__address__") or "/" in labels["__address__"]:
            return None
        labels.setdefault("instance", labels["__address__"])
        shown = {name: value for name, value in labels.items() if not name.startswith("__")}
        return Wanted(
            job=self.name,
            labels=tuple(sorted(shown.items())),
            url=f"{labels.get('__scheme__', 'http')}://{labels['__address__']}{labels.get('__metrics_path__', '')}",
            interval_s=self.interval_s,
            timeout_s=self.timeout_s,
            discovered=tuple(sorted(before.items())),
        )


def read_jobs(documents: Sequence[Mapping[str, Any]], *, interval_s: float | None = None) -> list[Job]:
    """The jobs of `scrape_configs`, all with another interval where one is given.

    Raises ValueError for what is not known here: a target that would be found elsewhere otherwise.
    """
    jobs = [_job(document, interval_s) for document in documents]
    if len({job.name for job in jobs}) != len(jobs):
        raise ValueError("two jobs have the same job_name")
    return jobs


def _job(document: Mapping[str, Any], interval_s: float | None) -> Job:
    name = str(document.get("job_name", ""))
    if unknown := document.keys() - _JOB_KEYS:
        raise ValueError(f"the job {name!r} has {sorted(unknown)[0]!r}, which is not known here")
    if not name or document.get("scheme", "http") != "http":
        raise ValueError("a job has a job_name, and its scheme is http")
    interval = interval_s or _seconds(document.get("scrape_interval", "1m"))
    timeout = min(interval, _seconds(document.get("scrape_timeout", "10s")))
    static = [
        {**config.get("labels", {}), "__address__": address}
        for config in document.get("static_configs") or ()
        for address in config.get("targets", ())
    ]
    return Job(
        name=name,
        interval_s=interval,
        timeout_s=timeout,
        path=str(document.get("metrics_path", "/metrics")),
        rules=read_rules(document.get("relabel_configs") or ()),
        static=tuple(static),
        namespaces=_namespaces(document.get("kubernetes_sd_configs") or (), name),
    )


def _namespaces(configs: Sequence[Mapping[str, Any]], job: str) -> frozenset[str] | None:
    found: set[str] = set()
    everywhere = False
    for config in configs:
        if config.get("role") != "pod" or config.keys() - {"role", "namespaces"}:
            raise ValueError(f"the job {job!r}: discovery is of role pod, by namespaces at most")
        names = (config.get("namespaces") or {}).get("names") or ()
        everywhere = everywhere or not names
        found.update(names)
    return None if not configs else frozenset() if everywhere else frozenset(found)


def pod_labels(pod: Doc) -> Iterator[Labels]:
    """The labels that discovery gives a pod: one set for each port of each container, or for a container without
    ports. A pod without an address has none."""
    address = (pod.get("status") or {}).get("podIP")
    if not address:
        return
    shared = _of_pod(pod)
    spec = pod.get("spec") or {}
    for init, key in ((False, "containers"), (True, "initContainers")):
        for container in spec.get(key) or ():
            own = {
                f"{_POD}container_name": container["name"],
                f"{_POD}container_image": container.get("image", ""),
                f"{_POD}container_id": _container_id(pod, container["name"], init),
                f"{_POD}container_init": str(init).lower(),
            }
            if not container.get("ports"):
                yield {**shared, **own, "__address__": address}
            for port in container.get("ports") or ():
                yield {**shared, **own, **_of_port(address, port)}


def _of_port(address: str, port: Doc) -> Labels:
    number = str(port["containerPort"])
    return {
        "__address__": f"[{address}]:{number}" if ":" in address else f"{address}:{number}",
        f"{_POD}container_port_number": number,
        f"{_POD}container_port_name": port.get("name", ""),
        f"{_POD}container_port_protocol": port.get("protocol", ""),
    }


def _of_pod(pod: Doc) -> Labels:
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    found = {
        f"{_META}namespace": meta["namespace"],
        f"{_POD}name": meta["name"],
        f"{_POD}ip": status["podIP"],
        f"{_POD}ready": _ready(status),
        f"{_POD}phase": status.get("phase", ""),
        f"{_POD}node_name": spec.get("nodeName", ""),
        f"{_POD}host_ip": status.get("hostIP", ""),
        f"{_POD}uid": meta.get("uid", ""),
    }
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            found[f"{_POD}controller_kind"] = owner.get("kind", "")
            found[f"{_POD}controller_name"] = owner.get("name", "")
    for word, key in (("label", "labels"), ("annotation", "annotations")):
        for name, value in (meta.get(key) or {}).items():
            plain = re.sub(r"[^a-zA-Z0-9_]", "_", name)
            found[f"{_POD}{word}_{plain}"] = value
            found[f"{_POD}{word}present_{plain}"] = "true"
    return found


def _ready(status: Doc) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            return str(condition.get("status", "")).lower()
    return "unknown"


def _container_id(pod: Doc, name: str, init: bool) -> str:
    states = (pod.get("status") or {}).get("initContainerStatuses" if init else "containerStatuses") or ()
    return next((str(one.get("containerID", "")) for one in states if one.get("name") == name), "")


def _seconds(text: Any) -> float:
    found = re.fullmatch(r"(\d+)(ms|s|m|h)", str(text))
    if not found or not int(found[1]):
        raise ValueError(f"{text!r} is no time between scrapes")
    return int(found[1]) * _UNITS[found[2]]


def _duration_text(seconds: float) -> str:
    return f"{seconds:g}s" if seconds == int(seconds) else f"{round(1000 * seconds)}ms"
