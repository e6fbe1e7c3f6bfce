"""Label and field selectors: ``a=b,c!=d,e in (f,g),h,!i`` and ``metadata.name=x,status.phase!=y``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from deploy.demo.emulator.kinds import Kind
from deploy.demo.emulator.problems import bad_request

Doc = dict[str, Any]
Match = Callable[[Doc], bool]

_TERM = re.compile(
    r"\s*(?:(?P<absent>!)\s*(?P<gone>[\w./-]+)"
    r"|(?P<key>[\w./-]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[\w.-]*)|(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?)"
    r"\s*(?:,|$)"
)
# Fields besides metadata.name and metadata.namespace by which the real server lets these kinds be selected.
_FIELDS: Mapping[str, frozenset[str]] = {
    "pods": frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    "nodes": frozenset({"spec.unschedulable"}),
    "namespaces": frozenset({"status.phase"}),
    "secrets": frozenset({"type"}),
    "services": frozenset({"spec.clusterIP", "spec.type"}),
    "jobs.batch": frozenset({"status.successful"}),
    "events": frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        }
    ),
}


def label_match(selector: str) -> Match:
    """Whether a document's labels fit. Raises ApiProblem 400 for text that is no selector."""
    terms: list[Callable[[Mapping[str, str]], bool]] = []
    at = 0
    while at < len(selector):
        found = _TERM.match(selector, at)
        if not found or found.end() == at:
            raise bad_request(f"unable to parse requirement: found '{selector[at:]}'")
        terms.append(_term(found))
        at = found.end()

    def match(document: Doc) -> bool:
        labels = document["metadata"].get("labels") or {}
        return all(term(labels) for term in terms)

    return match


def _term(found: re.Match[str]) -> Callable[[Mapping[str, str]], bool]:
    key = found["gone"] or found["key"]
    if found["absent"]:
        return lambda labels: key not in labels
    if found["set"]:
        values = {each.strip() for each in found["values"].split(",")}
        if found["set"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    value = found["value"]
    if found["op"] == "!=":
        return lambda labels: labels.get(key) != value
    if found["op"]:
        return lambda labels: labels.get(key) == value
    return lambda labels: key in labels


def selector_match(selector: Mapping[str, Any] | None) -> Match:
    """The same for a LabelSelector of a document (matchLabels, matchExpressions); an empty one takes everything."""
    wanted = (selector or {}).get("matchLabels") or {}
    expressions = (selector or {}).get("matchExpressions") or []

    def match(document: Doc) -> bool:
        labels = document["metadata"].get("labels") or {}
        return all(labels.get(key) == value for key, value in wanted.items()) and all(
            _fits(labels, each) for each in expressions
        )

    return match


def _fits(labels: Mapping[str, str], expression: Mapping[str, Any]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def field_match(kind: Kind, selector: str) -> Match:
    """Whether a document's fields fit. Raises ApiProblem 400 for a field that the kind has no index of."""
    terms: list[tuple[str, bool, str]] = []
    for part in filter(None, selector.split(",")):
        found = re.fullmatch(r"\s*([\w.\[\]]+)\s*(==|=|!=)\s*(.*?)\s*", part)
        if not found:
            raise bad_request(f"invalid field selector: '{part}'")
        path, operator, value = found.groups()
        known = {"metadata.name", "metadata.namespace"} | _FIELDS.get(kind.ref, frozenset())
        if path not in known:
            raise bad_request(f"field label not supported: {path}")
        terms.append((path, operator != "!=", value))
    return lambda document: all((_text(document, path) == value) is same for path, same, value in terms)


def _text(document: Doc, path: str) -> str:
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
