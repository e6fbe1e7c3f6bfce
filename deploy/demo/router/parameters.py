"""Parameters of the plugins that this router plays: strict about fields and types, indifferent to their case.

As in the llm-d router, types without parameters ignore a parameter block. What the real plugin can do with a parameter
and ours cannot is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deploy.demo.router import scheduling
from deploy.demo.router.documents import ConfigError
from deploy.demo.router.scheduling import LabelFilter, Picker, PrefixDecider, Scorer
from deploy.demo.router.screener import REVISION_LABEL, ROLE_LABEL, HeaderSelector, Screener
from deploy.demo.router.selectors import from_object, parse_selector

ROLE = "llm-d.ai/role"
# Role label values that each role filter keeps; decode keeps pods without the label too.
ROLES = {
    "decode-filter": frozenset({"decode", "prefill-decode", "both", "encode-prefill-decode"}),
    "prefill-filter": frozenset(
        {"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"}
    ),
    "encode-filter": frozenset({"encode", "encode-prefill", "encode-prefill-decode"}),
}
GATING_MODES = ("sum", "max-role", "disabled")


@dataclass(frozen=True)
class Plugin:
    """One declared (or injected) plugin and the object that plays it."""

    name: str
    type: str
    played: Any = None


def fields(name: str, kind: str, given: Any, known: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """The known fields of a parameter object, found in any case; ConfigError for unknown ones and wrong types."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise broken(name, kind, "json: cannot unmarshal parameters that are no object")
    by_case = {field.lower(): field for field in known}
    found: dict[str, Any] = {}
    for key, value in given.items():
        field = by_case.get(str(key).lower())
        if field is None:
            raise broken(name, kind, f'json: unknown field "{key}"')
        wanted = known[field]
        if value is None:
            continue
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise broken(name, kind, f"json: cannot unmarshal a value of another type into field {field}")
        found[field] = value
    return found


def broken(name: str, kind: str, problem: str) -> ConfigError:
    """The error of a plugin that cannot be made."""
    where = f"plugin instantiation failed: failed to create plugin '{name}' (type: {kind})"
    return ConfigError(7, f"{where}: {problem}")


def not_played(name: str, kind: str, what: str) -> ConfigError:
    """The error of something that the llm-d router does and this router does not."""
    return ConfigError(0, f"plugin '{name}' (type: {kind}): {what} is not played by this router")


def _role_filter(name: str, kind: str, given: Any) -> LabelFilter:
    wanted, unlabelled = ROLES[kind], kind == "decode-filter"

    def fits(labels: Mapping[str, str]) -> bool:
        return labels[ROLE] in wanted if ROLE in labels else unlabelled

    return LabelFilter(name, kind, fits)


def _by_label(name: str, kind: str, given: Any) -> LabelFilter:
    found = fields(name, kind, given, {"label": str, "validValues": list, "allowsNoLabel": bool})
    label, values = found.get("label", ""), frozenset(found.get("validValues", ()))
    if not label:
        raise broken(name, kind, f"invalid configuration for '{kind}' filter: 'label' must be specified")
    if not values and not found.get("allowsNoLabel"):
        raise broken(
            name, kind, f"invalid configuration for '{kind}' filter: 'validValues' must be specified"
        )

    def fits(labels: Mapping[str, str]) -> bool:
        return labels[label] in values if label in labels else bool(found.get("allowsNoLabel"))

    return LabelFilter(name, kind, fits)


def _selector_filter(name: str, kind: str, given: Any) -> LabelFilter:
    found = fields(name, kind, given, {"matchLabels": dict, "matchExpressions": list})
    try:
        return LabelFilter(name, kind, from_object(found).matches)
    except (KeyError, TypeError, ValueError) as error:
        raise broken(name, kind, str(error)) from None


def _scorer(name: str, kind: str, given: Any) -> Scorer:
    return Scorer(name, kind, scheduling.queue_scores if kind == "queue-scorer" else scheduling.kv_scores)


def _label_scorer(name: str, kind: str, given: Any) -> Scorer:
    found = fields(name, kind, given, {"headerName": str, "labelKey": str})
    for field in ("headerName", "labelKey"):
        if not found.get(field):
            raise broken(name, kind, f"{field} is required")
    return Scorer(name, kind, scheduling.label_scores(found["headerName"].lower(), found["labelKey"]))


def _picker(name: str, kind: str, given: Any) -> Picker:
    found = fields(name, kind, given, {"maxNumOfEndpoints": int})
    if found.get("maxNumOfEndpoints", 1) != 1:
        raise not_played(name, kind, "maxNumOfEndpoints above 1")
    return Picker(name, kind)


def _always(name: str, kind: str, given: Any) -> Callable[[scheduling.Ask], bool]:
    return scheduling.always


def _prefix_decider(name: str, kind: str, given: Any) -> PrefixDecider:
    found = fields(name, kind, given, {"nonCachedTokens": int, "promptTokens": int})
    for field, value in found.items():
        if value < 0:
            raise broken(name, kind, f"{field} parameter of prefix disaggregation decider cannot be negative")
    return PrefixDecider(found.get("nonCachedTokens", 0), found.get("promptTokens", 0))


def _screener(name: str, kind: str, given: Any) -> Screener:
    known: dict[str, type | tuple[type, ...]] = {
        "scope": dict,
        "headerSelectors": list,
        "revisionGating": dict,
    }
    found = fields(name, kind, given, known)
    text = fields(name, kind, found.get("scope"), {"labelSelector": str}).get("labelSelector", "")
    if not text:
        raise broken(name, kind, "scope.labelSelector is required")
    try:
        scope = parse_selector(text)
    except ValueError as error:
        raise broken(name, kind, f"scope.labelSelector is not a valid label selector: {error}") from None
    selectors = _header_selectors(name, kind, found.get("headerSelectors", []))
    gating_fields: dict[str, type | tuple[type, ...]] = {
        "mode": str,
        "requireRoles": dict,
        "revisionLabelKey": str,
        "roleLabelKey": str,
    }
    if "revisionGating" not in found:
        raise broken(name, kind, "revisionGating is required")
    gating = fields(name, kind, found["revisionGating"], gating_fields)
    return Screener(
        name=name,
        scope=scope,
        mode=gating.get("mode", ""),
        roles=_required_roles(name, kind, gating),
        selectors=selectors,
        revision_label=gating.get("revisionLabelKey") or REVISION_LABEL,
        role_label=gating.get("roleLabelKey") or ROLE_LABEL,
    )


def _required_roles(name: str, kind: str, gating: Mapping[str, Any]) -> tuple[str, ...]:
    mode = gating.get("mode", "")
    if mode not in GATING_MODES:
        raise broken(name, kind, f'revisionGating.mode "{mode}" must be one of sum|max-role|disabled')
    if mode == "disabled":
        return ()
    if "requireRoles" not in gating:
        raise broken(name, kind, f"revisionGating.requireRoles is required when revisionGating.mode={mode}")
    roles = fields(name, kind, gating["requireRoles"], {"values": list}).get("values", [])
    if not roles:
        raise broken(name, kind, "revisionGating.requireRoles.values must contain at least one role")
    for index, role in enumerate(roles):
        if not isinstance(role, str) or not role:
            raise broken(name, kind, f"revisionGating.requireRoles.values[{index}] must not be empty")
        if role in roles[:index]:
            raise broken(name, kind, f'revisionGating.requireRoles.values: duplicate role "{role}"')
    return tuple(roles)


def _header_selectors(name: str, kind: str, listed: list[Any]) -> tuple[HeaderSelector, ...]:
    found: list[HeaderSelector] = []
    known: dict[str, type | tuple[type, ...]] = {
        "name": str,
        "headerName": str,
        "labelKey": str,
        "mode": str,
    }
    for index, entry in enumerate(listed):
        one = fields(name, kind, entry, known)
        for field in ("name", "headerName", "labelKey"):
            if not one.get(field):
                raise broken(name, kind, f"headerSelectors[{index}].{field} is required")
        mode = one.get("mode", "")
        if mode not in ("strict", "prefer"):
            raise broken(name, kind, f'headerSelectors[{index}].mode "{mode}" must be one of strict|prefer')
        if one["name"] in (other.name for other in found):
            raise broken(name, kind, f'headerSelectors: duplicate name "{one["name"]}"')
        if one["headerName"] in (other.header for other in found):
            raise broken(name, kind, f'headerSelectors: duplicate headerName "{one["headerName"]}"')
        found.append(HeaderSelector(one["name"], one["headerName"], one["labelKey"], mode))
    return tuple(found)


def _nothing(name: str, kind: str, given: Any) -> None:
    """Types that need no object: parsers, handlers (made with their profiles), default policies."""


def _no_parameters(name: str, kind: str, given: Any) -> None:
    if given:
        raise not_played(name, kind, "a parameter of this plugin")


def _static_limit(name: str, kind: str, given: Any) -> None:
    found = fields(name, kind, given, {"threshold": (int, float)})
    if found.get("threshold", 1.0) != 1.0:
        raise not_played(name, kind, "a threshold other than 1 (there is no queue)")


MAKERS: dict[str, Callable[[str, str, Any], Any]] = {
    "always-disagg-pd-decider": _always,
    "by-label": _by_label,
    "by-label-selector": _selector_filter,
    "core-metrics-extractor": _no_parameters,
    "decode-filter": _role_filter,
    "disaggregatedset-rollout-screener": _screener,
    "encode-filter": _role_filter,
    "header-label-affinity-scorer": _label_scorer,
    "kv-cache-utilization-scorer": _scorer,
    "label-selector-filter": _selector_filter,
    "max-score-picker": _picker,
    "metrics-data-source": _no_parameters,
    "prefill-filter": _role_filter,
    "prefix-based-pd-decider": _prefix_decider,
    "queue-scorer": _scorer,
    "random-picker": _picker,
    "static-usage-limit-policy": _static_limit,
    "weighted-random-picker": _picker,
}


def make(name: str, kind: str, given: Any) -> Any:
    """The object of a declared plugin (None for types that need none); ConfigError when its parameters are wrong."""
    maker: Callable[[str, str, Any], Any] = MAKERS.get(kind, _nothing)
    return maker(name, kind, given)
