"""Whether a pod may be on a node, and which node is best. Pure: documents in, words out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from deploy.demo.emulator.controllers.names import labels_of
from deploy.demo.emulator.controllers.revision import quantity
from deploy.demo.emulator.selectors import selector_match

Doc = dict[str, Any]
_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


def requests_of(pod: Doc) -> dict[str, Decimal]:
    """What a pod asks for, by resource; a limit without a request is one. Each pod takes one of "pods"."""
    total: dict[str, Decimal] = {"pods": Decimal(1)}
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            total[name] = total.get(name, Decimal(0)) + quantity(amount)
    return total


@dataclass
class Machine:
    """A node with what is on it."""

    doc: Doc
    pods: list[Doc] = field(default_factory=list)
    used: dict[str, Decimal] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.doc["metadata"]["name"])

    def put(self, pod: Doc) -> None:
        """One pod more."""
        self.pods.append(pod)
        for name, amount in requests_of(pod).items():
            self.used[name] = self.used.get(name, Decimal(0)) + amount

    def has(self, name: str) -> Decimal:
        """How much of a resource it has."""
        return quantity((self.doc.get("status") or {}).get("allocatable", {}).get(name, 0))

    def fullness(self) -> Decimal:
        """The largest share that is taken of any resource."""
        shares = [used / self.has(name) for name, used in self.used.items() if self.has(name)]
        return max(shares, default=Decimal(0))


def refusals(pod: Doc, machine: Machine, machines: Sequence[Machine]) -> list[str]:
    """Why a pod may not be on a node, in a scheduler's words; empty when it may."""
    spec, node = pod["spec"], machine.doc
    if (node.get("spec") or {}).get("unschedulable"):
        return ["node(s) were unschedulable"]
    if taint := untolerated(spec, node, ("NoSchedule", "NoExecute")):
        return [f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"]
    labels = {**labels_of(node), "metadata.name": machine.name}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return ["node(s) didn't match Pod's node affinity/selector"]
    affinity = spec.get("affinity") or {}
    terms = ((affinity.get("nodeAffinity") or {}).get(_TERMS) or {}).get("nodeSelectorTerms")
    if terms is not None and not any(_fits_term(labels, term) for term in terms):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if why := _among_pods(pod, affinity, machine, machines):
        return [why]
    return [
        f"Insufficient {name}" if name != "pods" else "Too many pods"
        for name, amount in requests_of(pod).items()
        if machine.used.get(name, Decimal(0)) + amount > machine.has(name)
    ]


def untolerated(spec: Doc, node: Doc, effects: Sequence[str]) -> Doc | None:
    """A taint of a node with one of these effects that a pod does not tolerate."""
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint["effect"] in effects and toleration(spec, taint) is None:
            return dict(taint)
    return None


def toleration(spec: Doc, taint: Doc) -> Doc | None:
    """The toleration of a pod that covers a taint."""
    for each in spec.get("tolerations") or ():
        if each.get("effect") not in (None, "", taint["effect"]):
            continue
        if each.get("operator", "Equal") == "Exists":
            if each.get("key") in (None, "", taint["key"]):
                return dict(each)
        elif each.get("key") == taint["key"] and each.get("value", "") == taint.get("value", ""):
            return dict(each)
    return None


def _fits_term(labels: Mapping[str, str], term: Doc) -> bool:
    for each in [*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())]:
        value, values = labels.get(each["key"]), each.get("values") or []
        fits = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
            "Gt": value is not None and values != [] and quantity(value) > quantity(values[0]),
            "Lt": value is not None and values != [] and quantity(value) < quantity(values[0]),
        }[each["operator"]]
        if not fits:
            return False
    return True


def _among_pods(pod: Doc, affinity: Doc, machine: Machine, machines: Sequence[Machine]) -> str:
    """Required affinity to other pods and from them: the sentence of what is against it, or ""."""
    for term in (affinity.get("podAffinity") or {}).get(_TERMS) or ():
        there = _inside(pod, term, machine, machines)
        if there is None or (not there and not _first_of_its_kind(pod, term, machines)):
            return "node(s) didn't match pod affinity rules"
    for term in (affinity.get("podAntiAffinity") or {}).get(_TERMS) or ():
        if _inside(pod, term, machine, machines):
            return "node(s) didn't match pod anti-affinity rules"
    for other in machines:
        for neighbour in other.pods:
            against = ((neighbour["spec"].get("affinity") or {}).get("podAntiAffinity") or {}).get(
                _TERMS
            ) or ()
            for term in against:
                key = term["topologyKey"]
                same = labels_of(machine.doc).get(key) is not None
                same = same and labels_of(machine.doc).get(key) == labels_of(other.doc).get(key)
                if same and _meant(neighbour, term, pod):
                    return "node(s) didn't satisfy existing pods anti-affinity rules"
    return ""


def _inside(pod: Doc, term: Doc, machine: Machine, machines: Sequence[Machine]) -> list[Doc] | None:
    """Pods that a term means in the domain of a node; None where the node is in no such domain."""
    domain = labels_of(machine.doc).get(term["topologyKey"])
    if domain is None:
        return None
    same = [each for each in machines if labels_of(each.doc).get(term["topologyKey"]) == domain]
    return [other for each in same for other in each.pods if _meant(pod, term, other)]


def _first_of_its_kind(pod: Doc, term: Doc, machines: Sequence[Machine]) -> bool:
    """A pod that asks to be with pods like itself may be the first of them."""
    others = any(_meant(pod, term, other) for each in machines for other in each.pods)
    return not others and _meant(pod, term, pod)


def _meant(pod: Doc, term: Doc, other: Doc) -> bool:
    namespaces = term.get("namespaces") or [pod["metadata"]["namespace"]]
    everywhere = term.get("namespaceSelector") == {}
    if not everywhere and other["metadata"]["namespace"] not in namespaces:
        return False
    return selector_match(term.get("labelSelector"))(other)
