"""What the server refuses in its own kinds, as far as somebody here can meet it: names, required fields, fields that
never change."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from deploy.demo.emulator.expressions import problem_of
from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.schema import Cause
from deploy.demo.emulator.selectors import selector_match

Doc = dict[str, Any]
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SEGMENT = re.compile(r"[^/%]+")
_RBAC = "rbac.authorization.k8s.io"
_MUTABLE_IN_PODS = frozenset(
    {"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates", "nodeName"}
)
_MUTABLE_IN_STATEFUL_SETS = frozenset(
    {
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    }
)


def _required(path: str, why: str = "") -> Cause:
    return path, "FieldValueRequired", f"Required value: {why}" if why else "Required value"


def _wrong(path: str, value: object, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else value
    return path, "FieldValueInvalid", f"Invalid value: {shown}: {why}"


def _fixed(path: str, value: object, old: object) -> list[Cause]:
    return [] if value == old else [_wrong(path, str(value), "field is immutable")]


def metadata(kind: Kind, doc: Doc, old: Doc | None) -> list[Cause]:
    """Names, labels, owners and finalizers of any kind."""
    meta = doc["metadata"]
    found = [] if old is not None else _name(kind, str(meta["name"]))
    found += _labels(meta) + _owners(meta)
    if old is not None and "deletionTimestamp" in old["metadata"]:
        added = sorted(set(meta.get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ()))
        if added:
            said = f"no new finalizers can be added if the object is being deleted, found new {added}"
            found.append(("metadata.finalizers", "FieldValueForbidden", f"Forbidden: {said}"))
    return found


def _name(kind: Kind, name: str) -> list[Cause]:
    if kind.group == _RBAC:
        pattern, limit, words = _SEGMENT, 253, "a path segment must have neither '/' nor '%'"
    elif kind.ref in ("namespaces", "services"):
        pattern, limit = _LABEL, 63
        words = "a lowercase RFC 1123 label must consist of lower case letters, digits or '-'"
    else:
        pattern, limit = _DNS, 253
        words = "a lowercase RFC 1123 subdomain must consist of lower case letters, digits, '-' or '.'"
    return [] if pattern.fullmatch(name) and len(name) <= limit else [_wrong("metadata.name", name, words)]


def _labels(meta: Doc) -> list[Cause]:
    found: list[Cause] = []
    for key, value in (meta.get("labels") or {}).items():
        if not isinstance(value, str) or not _VALUE.fullmatch(value) or len(value) > 63:
            words = "a valid label must be an empty string or consist of letters, digits, '-', '_' or '.'"
            found.append(_wrong("metadata.labels", str(value), words))
        if not _KEY.fullmatch(key):
            words = "name part must consist of letters, digits, '-', '_' or '.'"
            found.append(_wrong("metadata.labels", key, words))
    for key, value in (meta.get("annotations") or {}).items():
        if not isinstance(value, str):
            found.append(_wrong(f"metadata.annotations.{key}", str(value), "must be a string"))
    return found


def _owners(meta: Doc) -> list[Cause]:
    owners = meta.get("ownerReferences") or ()
    found = [
        _required(f"metadata.ownerReferences[{index}].{field}")
        for index, owner in enumerate(owners)
        for field in ("apiVersion", "kind", "name", "uid")
        if not owner.get(field)
    ]
    if sum(1 for each in owners if each.get("controller")) > 1:
        why = "Only one reference can have Controller set to true"
        found.append(_wrong("metadata.ownerReferences", "", why))
    return found


def judge(ref: str, doc: Doc, old: Doc | None) -> list[Cause]:
    """The rules of one built-in kind."""
    return _JUDGES[ref](doc, old) if ref in _JUDGES else []


def _pod(doc: Doc, old: Doc | None) -> list[Cause]:
    found = _containers(doc["spec"], "spec")
    if old is not None and _frozen_part(doc["spec"]) != _frozen_part(old["spec"]):
        text = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
            "existing tolerations),`spec.terminationGracePeriodSeconds`"
        )
        found.append(("spec", "FieldValueForbidden", text))
    return found


def _frozen_part(spec: Doc) -> Doc:
    part = {key: value for key, value in spec.items() if key not in _MUTABLE_IN_PODS}
    for name in ("containers", "initContainers"):
        part[name] = [{**each, "image": ""} for each in part.get(name) or ()]
    return part


def _containers(spec: Doc, path: str) -> list[Cause]:
    containers = spec.get("containers") or []
    found: list[Cause] = [] if containers else [_required(f"{path}.containers")]
    names = set()
    for index, each in enumerate(containers):
        at = f"{path}.containers[{index}]"
        if not each.get("name"):
            found.append(_required(f"{at}.name"))
        elif each["name"] in names:
            found.append((f"{at}.name", "FieldValueDuplicate", f'Duplicate value: "{each["name"]}"'))
        names.add(each.get("name"))
        if not each.get("image"):
            found.append(_required(f"{at}.image"))
    return found


def _workload(doc: Doc, old: Doc | None) -> list[Cause]:
    spec = doc["spec"]
    found = _containers(spec["template"]["spec"], "spec.template.spec")
    selector = spec.get("selector")
    if not selector:
        return [*found, _required("spec.selector")]
    if not selector_match(selector)({"metadata": spec["template"]["metadata"]}):
        labels = spec["template"]["metadata"].get("labels") or {}
        found.append(
            _wrong(
                "spec.template.metadata.labels", str(labels), "`selector` does not match template `labels`"
            )
        )
    if spec.get("replicas", 0) < 0:
        found.append(_wrong("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
    if old is not None:
        found += _fixed("spec.selector", selector, old["spec"].get("selector"))
    return found


def _stateful_set(doc: Doc, old: Doc | None) -> list[Cause]:
    found = _workload(doc, None)
    if old is not None:
        kept = [
            {key: value for key, value in each["spec"].items() if key not in _MUTABLE_IN_STATEFUL_SETS}
            for each in (doc, old)
        ]
        if kept[0] != kept[1]:
            text = (
                "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
                "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
                "'minReadySeconds' are forbidden"
            )
            found.append(("spec", "FieldValueForbidden", text))
    return found


def _job(doc: Doc, old: Doc | None) -> list[Cause]:
    spec = doc["spec"]
    found = _containers(spec["template"]["spec"], "spec.template.spec")
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy not in ("OnFailure", "Never"):
        text = f'Unsupported value: "{policy}": supported values: "OnFailure", "Never"'
        found.append(("spec.template.spec.restartPolicy", "FieldValueNotSupported", text))
    if old is not None:
        found += _fixed("spec.selector", spec.get("selector"), old["spec"].get("selector"))
        if not old["spec"].get("suspend"):
            found += _fixed("spec.template", spec["template"], old["spec"]["template"])
    return found


def _config(doc: Doc, old: Doc | None) -> list[Cause]:
    found: list[Cause] = []
    for key, value in (doc.get("data") or {}).items():
        if not isinstance(value, str):
            found.append(_wrong(f"data[{key}]", str(value), "must be a string"))
    if old is not None and old.get("immutable"):
        for key in ("data", "binaryData"):
            if doc.get(key) != old.get(key):
                found.append(
                    (key, "FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set")
                )
        if not doc.get("immutable"):
            found.append(
                ("immutable", "FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set")
            )
    return found


def _secret(doc: Doc, old: Doc | None) -> list[Cause]:
    return _config(doc, old) + (_fixed("type", doc.get("type"), old.get("type")) if old else [])


def _service(doc: Doc, old: Doc | None) -> list[Cause]:
    spec = doc["spec"]
    found: list[Cause] = []
    if spec["type"] != "ExternalName" and not spec.get("ports") and spec.get("clusterIP") != "None":
        found.append(_required("spec.ports"))
    for index, port in enumerate(spec.get("ports") or ()):
        if not isinstance(port.get("port"), int) or not 0 < port["port"] < 65536:
            why = "must be between 1 and 65535, inclusive"
            found.append(_wrong(f"spec.ports[{index}].port", port.get("port", 0), why))
        if len(spec["ports"]) > 1 and not port.get("name"):
            found.append(_required(f"spec.ports[{index}].name"))
    if old is not None and spec["type"] == old["spec"]["type"] != "ExternalName":
        found += _fixed("spec.clusterIP", spec.get("clusterIP"), old["spec"].get("clusterIP"))
    return found


def _autoscaler(doc: Doc, old: Doc | None) -> list[Cause]:
    spec = doc["spec"]
    most, least = spec.get("maxReplicas", 0), spec.get("minReplicas", 1)
    found: list[Cause] = []
    if most < 1:
        found.append(_wrong("spec.maxReplicas", most, "must be greater than 0"))
    if least < 1:
        found.append(_wrong("spec.minReplicas", least, "must be greater than or equal to 1"))
    if most < least:
        found.append(_wrong("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
    for key in ("kind", "name"):
        if not (spec.get("scaleTargetRef") or {}).get(key):
            found.append(_required(f"spec.scaleTargetRef.{key}"))
    return found


def _binding(doc: Doc, old: Doc | None) -> list[Cause]:
    found: list[Cause] = []
    for key in ("kind", "name"):
        if not doc["roleRef"].get(key):
            found.append(_required(f"roleRef.{key}"))
    if old is not None and doc["roleRef"] != old["roleRef"]:
        found.append(_wrong("roleRef", str(doc["roleRef"]), "cannot change roleRef"))
    return found


def _policy(doc: Doc, old: Doc | None) -> list[Cause]:
    spec = doc["spec"]
    found: list[Cause] = []
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        found.append(_required("spec.validations", "validations or auditAnnotations must be non-empty"))
    if not (spec.get("matchConstraints") or {}).get("resourceRules"):
        found.append(_required("spec.matchConstraints.resourceRules"))
    for field in ("matchConditions", "variables", "validations"):
        for index, each in enumerate(spec.get(field) or ()):
            for key in ("expression", "messageExpression"):
                if each.get(key) and (why := problem_of(each[key])):
                    at = f"spec.{field}[{index}].{key}"
                    found.append(_wrong(at, each[key], f"compilation failed: {why}"))
    return found


def _policy_binding(doc: Doc, old: Doc | None) -> list[Cause]:
    spec = doc["spec"]
    found: list[Cause] = [] if spec.get("policyName") else [_required("spec.policyName")]
    if not spec.get("validationActions"):
        found.append(_required("spec.validationActions", "at least one validation action is required"))
    ref = spec.get("paramRef")
    if ref is not None:
        if bool(ref.get("name")) == ("selector" in ref):
            found.append(_required("spec.paramRef.name", "one of name or selector must be specified"))
        if ref.get("parameterNotFoundAction") not in ("Allow", "Deny"):
            found.append(_required("spec.paramRef.parameterNotFoundAction"))
    return found


def _definition(doc: Doc, old: Doc | None) -> list[Cause]:
    spec, name = doc["spec"], doc["metadata"]["name"]
    wanted = f"{spec['names']['plural']}.{spec['group']}"
    found: list[Cause] = [] if name == wanted else [_wrong("metadata.name", name, f"must be {wanted}")]
    if sum(1 for each in spec["versions"] if each.get("storage")) != 1:
        why = "must have exactly one version marked as storage version"
        found.append(_wrong("spec.versions", "", why))
    if old is not None:
        found += _fixed("spec.scope", spec.get("scope"), old["spec"].get("scope"))
    return found


_JUDGES: Mapping[str, Callable[[Doc, Doc | None], list[Cause]]] = {
    "pods": _pod,
    "configmaps": _config,
    "secrets": _secret,
    "services": _service,
    "deployments.apps": _workload,
    "replicasets.apps": _workload,
    "daemonsets.apps": _workload,
    "statefulsets.apps": _stateful_set,
    "jobs.batch": _job,
    "horizontalpodautoscalers.autoscaling": _autoscaler,
    f"clusterrolebindings.{_RBAC}": _binding,
    f"rolebindings.{_RBAC}": _binding,
    "validatingadmissionpolicies.admissionregistration.k8s.io": _policy,
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _policy_binding,
    "customresourcedefinitions.apiextensions.k8s.io": _definition,
}
