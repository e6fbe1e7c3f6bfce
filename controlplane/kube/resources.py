"""The kinds of objects that Lockstep reads or writes, with their REST paths."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """One REST resource. `group` is empty for the core API, `plural` is the path segment."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The value of `apiVersion` in a manifest: `v1`, `apps/v1`, …"""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object (`name`) or of its subresource.

        Without a namespace a namespaced resource gives the collection over all namespaces; one object of it
        cannot be addressed then. Raises ValueError for such a call, and for a namespace on a cluster-wide
        kind.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.kind} has no namespace")
        if name and self.namespaced and not namespace:
            raise ValueError(f"one {self.kind} is addressed by namespace and name")
        if subresource and not name:
            raise ValueError("a subresource belongs to one object")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)


DISAGGREGATED_SETS = Resource("disaggregatedset.x-k8s.io", "v1", "disaggregatedsets", "DisaggregatedSet")
LEADER_WORKER_SETS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
# What sizes a role whose scaling mode is External; newer managers only.
ROLE_SCALERS = Resource(
    "disaggregatedset.x-k8s.io", "v1", "disaggregatedsetrolescalers", "DisaggregatedSetRoleScaler"
)

PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
HPAS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
SCALED_OBJECTS = Resource("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject")
POD_AUTOSCALERS = Resource("autoscaling.internal.knative.dev", "v1alpha1", "podautoscalers", "PodAutoscaler")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
# The path of requests: pools of the Gateway API Inference Extension, routes of the Gateway API.
INFERENCE_POOLS = Resource("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool")
HTTP_ROUTES = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
# The group of llm-d, and the older one that is served where the newer is not.
OBJECTIVES = Resource("llm-d.ai", "v1alpha2", "inferenceobjectives", "InferenceObjective")
OLDER_OBJECTIVES = Resource(
    "inference.networking.x-k8s.io", "v1alpha2", "inferenceobjectives", "InferenceObjective"
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
ADMISSION_POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
ADMISSION_POLICY_BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
