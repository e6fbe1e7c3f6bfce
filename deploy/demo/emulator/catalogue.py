"""The kinds that every emulator serves: those of Kubernetes that somebody here reads or writes, and those that a
cluster with LeaderWorkerSet, the Gateway API, its inference extension, llm-d, KEDA and Knative has from their CRDs."""

from __future__ import annotations

from typing import Any

from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.path_kinds import path_kinds
from deploy.demo.emulator.set_kinds import set_kinds

_MATCHED = (".spec.replicas", ".status.replicas", ".spec.selector")
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
Doc = dict[str, Any]


def _cluster(group: str, version: str, plural: str, kind: str, **options: object) -> Kind:
    return Kind(group, version, plural, kind, namespaced=False, **options)  # type: ignore[arg-type]


CORE = (
    _cluster("", "v1", "namespaces", "Namespace", status=True, short=("ns",)),
    _cluster("", "v1", "nodes", "Node", status=True, created_with_status=True, short=("no",)),
    _cluster("", "v1", "persistentvolumes", "PersistentVolume", status=True, short=("pv",)),
    Kind(
        "",
        "v1",
        "pods",
        "Pod",
        status=True,
        spec_counts=True,
        short=("po",),
        subresources=("binding", "eviction", "log"),
    ),
    Kind("", "v1", "services", "Service", status=True, short=("svc",)),
    Kind("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    Kind("", "v1", "secrets", "Secret"),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",), subresources=("token",)),
    Kind("", "v1", "events", "Event", short=("ev",)),
    Kind("", "v1", "endpoints", "Endpoints", short=("ep",)),
    Kind("", "v1", "resourcequotas", "ResourceQuota", status=True, short=("quota",)),
    Kind("", "v1", "limitranges", "LimitRange", short=("limits",)),
    Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", status=True, short=("pvc",)),
)

WORKLOADS = (
    Kind(
        "apps",
        "v1",
        "deployments",
        "Deployment",
        status=True,
        spec_counts=True,
        scale=_MATCHED,
        short=("deploy",),
    ),
    Kind(
        "apps",
        "v1",
        "replicasets",
        "ReplicaSet",
        status=True,
        spec_counts=True,
        scale=_MATCHED,
        short=("rs",),
    ),
    Kind(
        "apps",
        "v1",
        "statefulsets",
        "StatefulSet",
        status=True,
        spec_counts=True,
        scale=_MATCHED,
        short=("sts",),
    ),
    Kind("apps", "v1", "daemonsets", "DaemonSet", status=True, spec_counts=True, short=("ds",)),
    Kind("apps", "v1", "controllerrevisions", "ControllerRevision"),
    Kind("batch", "v1", "jobs", "Job", status=True, spec_counts=True),
    Kind("batch", "v1", "cronjobs", "CronJob", status=True, spec_counts=True, short=("cj",)),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", status=True, spec_counts=True),
    Kind(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        status=True,
        short=("hpa",),
    ),
    Kind("coordination.k8s.io", "v1", "leases", "Lease", blind_put=False),
    Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", spec_counts=True),
    _cluster("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", short=("pc",)),
)

RULES = (
    _cluster(_RBAC, "v1", "clusterroles", "ClusterRole"),
    _cluster(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding"),
    Kind(_RBAC, "v1", "roles", "Role"),
    Kind(_RBAC, "v1", "rolebindings", "RoleBinding"),
    _cluster(
        _ADMISSION,
        "v1",
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        status=True,
        spec_counts=True,
    ),
    _cluster(
        _ADMISSION,
        "v1",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        spec_counts=True,
    ),
    _cluster(
        _ADMISSION,
        "v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        spec_counts=True,
    ),
    _cluster(
        _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", spec_counts=True
    ),
    _cluster(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        status=True,
        spec_counts=True,
        short=("crd", "crds"),
    ),
)

CATALOGUE = (*CORE, *WORKLOADS, *RULES)


def definitions(*, newer_sets: bool = False) -> list[Doc]:
    """The CustomResourceDefinitions of a cluster with all those projects."""
    return [*set_kinds(newer=newer_sets), *path_kinds()]
