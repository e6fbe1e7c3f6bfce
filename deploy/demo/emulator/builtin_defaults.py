"""What the server fills in for its own kinds, as far as somebody here can notice it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deploy.demo.emulator.respelling import respell

Doc = dict[str, Any]


def fill(ref: str, doc: Doc) -> None:
    """Set the defaults of a document in place. Filling in again changes nothing."""
    if ref in _FILLERS:
        _FILLERS[ref](doc)
    if ref in _STATUS:
        _put(doc, status=dict(_STATUS[ref]))


def _put(doc: Doc, **values: Any) -> None:
    for key, value in values.items():
        if doc.get(key) is None:
            doc[key] = value


def _namespace(doc: Doc) -> None:
    labels = doc["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = doc["metadata"]["name"]
    _put(doc.setdefault("status", {}), phase="Active")


# --- pods


def _pod(doc: Doc) -> None:
    spec = doc.setdefault("spec", {})
    respell(doc)
    pod_spec(spec)
    for container in _containers(spec):
        resources = container["resources"]
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    _put(spec, enableServiceLinks=True, preemptionPolicy="PreemptLowerPriority", priority=0)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    waits = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            each.get("key", key) == key and each.get("effect", "") in ("", "NoExecute") for each in waits
        ):
            waits.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    status = doc.setdefault("status", {})
    _put(status, phase="Pending", qosClass=_quality(spec))


def _quality(spec: Doc) -> str:
    wholes = []
    for container in _containers(spec):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        named = {key for key in ("cpu", "memory") if key in limits or key in requests}
        wholes.append(
            named == {"cpu", "memory"} and all(limits.get(key) == requests.get(key) for key in named)
        )
        if named and not wholes[-1]:
            return "Burstable"
    if wholes and all(wholes):
        return "Guaranteed"
    return "Burstable" if any(wholes) else "BestEffort"


def _containers(spec: Doc) -> Iterable[Doc]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def pod_spec(spec: Doc) -> None:
    """The defaults of a pod spec, in a pod or in the template of a built-in kind."""
    _put(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )
    if spec.get("serviceAccountName"):
        _put(spec, serviceAccount=spec["serviceAccountName"])
    for container in _containers(spec):
        _container(container)
    for volume in spec.get("volumes") or ():
        for source in ("configMap", "secret", "projected", "downwardAPI"):
            if source in volume:
                _put(volume[source], defaultMode=420)
        if set(volume) == {"name"}:
            volume["emptyDir"] = {}
        if "hostPath" in volume:
            _put(volume["hostPath"], type="")


def _container(container: Doc) -> None:
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    newest = "@" not in image and tag in ("", "latest")
    _put(
        container,
        imagePullPolicy="Always" if newest else "IfNotPresent",
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        resources={},
    )
    for port in container.get("ports") or ():
        _put(port, protocol="TCP")
    for each in container.get("env") or ():
        if "fieldRef" in (each.get("valueFrom") or {}):
            _put(each["valueFrom"]["fieldRef"], apiVersion="v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])


def _probe(probe: Doc) -> None:
    _put(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if "httpGet" in probe:
        _put(probe["httpGet"], scheme="HTTP", path="/")
    if "grpc" in probe:
        _put(probe["grpc"], service="")


# --- workloads


def _template(spec: Doc) -> None:
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    respell(template)
    pod_spec(template.setdefault("spec", {}))


def _deployment(doc: Doc) -> None:
    spec = doc.setdefault("spec", {})
    _put(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = spec.setdefault("strategy", {})
    _put(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {
            "maxUnavailable": "25%",
            "maxSurge": "25%",
            **(strategy.get("rollingUpdate") or {}),
        }
    _template(spec)


def _replica_set(doc: Doc) -> None:
    _put(doc.setdefault("spec", {}), replicas=1)
    _template(doc["spec"])


def _stateful_set(doc: Doc) -> None:
    spec = doc.setdefault("spec", {})
    _put(
        spec,
        replicas=1,
        revisionHistoryLimit=10,
        podManagementPolicy="OrderedReady",
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain"},
    )
    _template(spec)


def _daemon_set(doc: Doc) -> None:
    spec = doc.setdefault("spec", {})
    pace = {"maxUnavailable": 1, "maxSurge": 0}
    _put(spec, revisionHistoryLimit=10, updateStrategy={"type": "RollingUpdate", "rollingUpdate": pace})
    _template(spec)


def _job(doc: Doc) -> None:
    spec, uid = doc.setdefault("spec", {}), doc["metadata"].get("uid", "")
    job_spec(spec)
    if not spec.get("manualSelector") and "selector" not in spec and uid:
        labels = spec["template"]["metadata"].setdefault("labels", {})
        for prefix in ("", "batch.kubernetes.io/"):
            labels[f"{prefix}controller-uid"] = uid
            labels[f"{prefix}job-name"] = doc["metadata"]["name"]
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def job_spec(spec: Doc) -> None:
    """The defaults of a Job's spec, in a Job or in a CronJob."""
    _put(spec, backoffLimit=6, completionMode="NonIndexed", suspend=False)
    _put(spec, podReplacementPolicy="TerminatingOrFailed", manualSelector=False)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    _put(spec, parallelism=1)
    _template(spec)


def _cron_job(doc: Doc) -> None:
    spec = doc.setdefault("spec", {})
    _put(
        spec, concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1
    )
    job_spec(spec.setdefault("jobTemplate", {}).setdefault("spec", {}))


# --- the rest


def _service(doc: Doc) -> None:
    spec = doc.setdefault("spec", {})
    _put(spec, type="ClusterIP", sessionAffinity="None")
    if spec["type"] == "ExternalName":
        return
    _put(spec, internalTrafficPolicy="Cluster", ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _address(doc["metadata"].get("uid", ""))
    spec["clusterIPs"] = [spec["clusterIP"]]
    for port in spec.get("ports") or ():
        _put(port, protocol="TCP", targetPort=port.get("port"))
    _put(doc.setdefault("status", {}), loadBalancer={})


def _address(uid: str) -> str:
    """An address of a Service: nothing listens there, but it is always the same for one object."""
    number = int(uid[:8] or "1", 16)
    return f"10.0.{number // 256 % 256}.{number % 254 + 1}"


def _secret(doc: Doc) -> None:
    _put(doc, type="Opaque")
    for key, value in (doc.pop("stringData", None) or {}).items():
        doc.setdefault("data", {})[key] = base64.b64encode(str(value).encode()).decode()


def _autoscaler(doc: Doc) -> None:
    spec = doc.setdefault("spec", {})
    _put(spec, minReplicas=1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    for name, window in (("scaleUp", 0), ("scaleDown", 300)):
        behavior = spec.get("behavior") or {}
        if not behavior:
            return
        rules = behavior.setdefault(name, {})
        policies = [{"type": "Percent", "value": 100, "periodSeconds": 15}]
        if name == "scaleUp":
            policies.insert(0, {"type": "Pods", "value": 4, "periodSeconds": 15})
        _put(rules, selectPolicy="Max", policies=policies)
        _put(rules, stabilizationWindowSeconds=window)


def _policy(doc: Doc) -> None:
    spec = doc.setdefault("spec", {})
    _put(spec, failurePolicy="Fail")
    _match(spec.get("matchConstraints"))


def _policy_binding(doc: Doc) -> None:
    _match(doc.setdefault("spec", {}).get("matchResources"))


def _match(match: Doc | None) -> None:
    if match is None:
        return
    _put(match, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
    for key in ("resourceRules", "excludeResourceRules"):
        for rule in match.get(key) or ():
            _put(rule, scope="*")


def _role_binding(doc: Doc) -> None:
    group = "rbac.authorization.k8s.io"
    _put(doc.setdefault("roleRef", {}), apiGroup=group)
    for subject in doc.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            _put(subject, apiGroup=group)


def _quota(doc: Doc) -> None:
    doc.setdefault("spec", {})


def _event(doc: Doc) -> None:
    _put(doc, type="Normal", source={}, reportingComponent="", reportingInstance="")


# What a status is before somebody has written one.
_STATUS: Mapping[str, Doc] = {
    "nodes": {},
    "resourcequotas": {},
    "deployments.apps": {},
    "replicasets.apps": {"replicas": 0},
    "statefulsets.apps": {"replicas": 0, "availableReplicas": 0},
    "daemonsets.apps": {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    },
    "jobs.batch": {},
    "cronjobs.batch": {},
    "horizontalpodautoscalers.autoscaling": {"currentMetrics": None, "desiredReplicas": 0},
    "validatingadmissionpolicies.admissionregistration.k8s.io": {},
}
_FILLERS: Mapping[str, Callable[[Doc], None]] = {
    "namespaces": _namespace,
    "pods": _pod,
    "services": _service,
    "secrets": _secret,
    "resourcequotas": _quota,
    "events": _event,
    "deployments.apps": _deployment,
    "replicasets.apps": _replica_set,
    "statefulsets.apps": _stateful_set,
    "daemonsets.apps": _daemon_set,
    "jobs.batch": _job,
    "cronjobs.batch": _cron_job,
    "horizontalpodautoscalers.autoscaling": _autoscaler,
    "validatingadmissionpolicies.admissionregistration.k8s.io": _policy,
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _policy_binding,
    "clusterrolebindings.rbac.authorization.k8s.io": _role_binding,
    "rolebindings.rbac.authorization.k8s.io": _role_binding,
}
