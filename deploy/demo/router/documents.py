"""Strict reading of an EndpointPickerConfig: text → dicts of the known fields, or one error.

As in the Kubernetes codec of the llm-d router: only the first YAML document counts, a key given twice is fatal (in JSON
not inside plugin parameters), so is an unknown field anywhere, and a value of another type. Null means absent.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from deploy.demo.router.quantities import BadValue, duration_s, quantity

Doc = dict[str, Any]

GROUPS = ("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1")
KIND = "EndpointPickerConfig"

_REF = {"pluginRef": "string"}
_BAND: Doc = {
    "priority": "int",
    "maxBytes": "quantity",
    "maxRequests": "quantity",
    "fairnessPolicyRef": "string",
    "orderingPolicyRef": "string",
}
SCHEMA: Doc = {
    "apiVersion": "string",
    "kind": "string",
    "featureGates": ["string"],
    "plugins": [{"name": "string", "type": "string", "parameters": "any"}],
    "schedulingProfiles": [{"name": "string", "plugins": [{"pluginRef": "string", "weight": "float"}]}],
    "dataLayer": {
        "injectDefaults": "bool",
        "sources": [{"pluginRef": "string", "extractors": [_REF]}],
        "discovery": _REF,
        "peerDiscovery": _REF,
        "crossReplicaSyncerPluginRef": "string",
        "crossReplicaSyncInterval": "duration",
    },
    "flowControl": {
        "maxBytes": "quantity",
        "maxRequests": "quantity",
        "defaultRequestTTL": "duration",
        "noEndpointRequestTTL": "duration",
        "defaultPriorityBand": _BAND,
        "defaultNegativePriorityBand": _BAND,
        "priorityBands": [_BAND],
        "usageLimitPolicyPluginRef": "string",
        "saturationDetector": _REF,
        "enableEviction": "bool",
    },
    "requestHandler": {"parsers": [_REF]},
    "saturationDetector": _REF,
    "parser": _REF,
}
_INT64 = 1 << 63


class ConfigError(ValueError):
    """The document cannot be used. `rule` is the number of the error class in the llm-d router (0: not played)."""

    def __init__(self, rule: int, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class _Strict(yaml.SafeLoader):
    """YAML 1.1 without dates, in which no key may be given twice, not even through a merge key."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                names = [self.construct_object(k, deep=True) for m in merged for k, _ in m.value]
            else:
                names = [self.construct_object(key_node, deep=True)]
            for name in names:
                if name in seen:
                    line = key_node.start_mark.line + 1
                    raise _refused(f'strict decoding error: line {line}: key "{name}" already set in map')
                seen.add(name)
        return super().construct_mapping(node, deep=True)


_Strict.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _refused(problem: str) -> ConfigError:
    return ConfigError(1, f"failed to decode configuration JSON/YAML: {problem}")


def read_document(text: str) -> Doc:
    """The decoded document: known fields only, nulls left out, durations in seconds, quantities as whole numbers."""
    try:
        raw = _read_json(text) if text.lstrip().startswith("{") else _first_yaml(text)
    except (yaml.YAMLError, json.JSONDecodeError) as error:
        raise _refused(" ".join(str(error).split())) from None
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        raise _refused(f"json: cannot unmarshal {_kind(raw)} into Go value of type v1alpha1.{KIND}")
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if isinstance(version or "", str) and isinstance(kind or "", str):
        if (version or GROUPS[0]) not in GROUPS or (kind or KIND) != KIND:
            shown = f'no kind "{kind or KIND}" is registered for version "{version or GROUPS[0]}"'
            raise _refused(shown)
    decoded: Doc = _decode(raw, SCHEMA, "")
    return decoded


def _read_json(text: str) -> Any:
    def one_level(pairs: list[tuple[str, Any]]) -> Doc:
        found: Doc = {}
        twice = [key for position, (key, _) in enumerate(pairs) if key in dict(pairs[:position])]
        for key, value in pairs:
            found[key] = value
        return _Twice(found, twice) if twice else found

    raw = json.loads(text, object_pairs_hook=one_level)
    _refuse_twice(raw)
    return raw


class _Twice(dict[str, Any]):
    """A JSON object in which some keys were given twice."""

    def __init__(self, found: Doc, twice: list[str]) -> None:
        super().__init__(found)
        self.twice = twice


def _refuse_twice(raw: Any) -> None:
    if isinstance(raw, _Twice):
        raise _refused(f'strict decoding error: duplicate field "{raw.twice[0]}"')
    if isinstance(raw, dict):
        for key, value in raw.items():
            if key != "parameters":  # handed to the plugin as it stands; there the last one wins
                _refuse_twice(value)
    elif isinstance(raw, list):
        for value in raw:
            _refuse_twice(value)


def _first_yaml(text: str) -> Any:
    """The first document; what comes after it is never looked at."""
    return next(iter(yaml.load_all(text, _Strict)), None)


def _decode(value: Any, schema: Any, path: str) -> Any:
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            raise _wrong(value, path, "object")
        found: Doc = {}
        for key, inner in value.items():
            where = f"{path}.{key}" if path else str(key)
            if key not in schema:
                raise _refused(f'strict decoding error: unknown field "{where}"')
            if inner is not None:
                found[key] = _decode(inner, schema[key], where)
        return found
    if isinstance(schema, list):
        if not isinstance(value, list):
            raise _wrong(value, path, "list")
        return [
            _decode({} if one is None else one, schema[0], f"{path}[{index}]")
            for index, one in enumerate(value)
        ]
    return _scalar(value, schema, path)


def _scalar(value: Any, kind: str, path: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "any":
        return value
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "int" and isinstance(value, int) and number and -_INT64 <= value < _INT64:
        return value
    if kind == "float" and number:
        return float(value)
    try:
        if kind == "duration" and isinstance(value, str):
            return duration_s(value)
        if kind == "quantity" and (number or isinstance(value, str)):
            return quantity(value if isinstance(value, str) else repr(value))
    except BadValue as error:
        raise _refused(str(error)) from None
    raise _wrong(value, path, {"duration": "string", "float": "float64"}.get(kind, kind))


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    names: dict[type[Any], str] = {str: "string", list: "array", dict: "object"}
    return names.get(type(value), type(value).__name__)


def _wrong(value: Any, path: str, wanted: str) -> ConfigError:
    shown = f"number {value}" if _kind(value) == "number" else _kind(value)
    return _refused(f"json: cannot unmarshal {shown} into Go struct field {path} of type {wanted}")
