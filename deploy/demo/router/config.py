"""An EndpointPickerConfig turned into what requests are decided with, or the one error that ends the start.

Checks and their order are those of the llm-d router; `ConfigError.rule` names the class of error. With the gate
`flowControl` on, priority bands are only counted: this router has no queue, so bands, caps, TTLs and eviction never
hold a request back, and a pool without endpoints answers at once instead of waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from deploy.demo.router import catalog, parameters, sections
from deploy.demo.router.documents import ConfigError, Doc, read_document
from deploy.demo.router.flags import parse_bool
from deploy.demo.router.parameters import Plugin
from deploy.demo.router.scheduling import (
    DisaggHandler,
    Handler,
    LabelFilter,
    Picker,
    Profile,
    Scorer,
    SingleHandler,
)
from deploy.demo.router.screener import Screener

SINGLE = "single-profile-handler"
DISAGG = "disagg-profile-handler"
_STAGE_ORDERS = {"": False, "decodefirst": False, "decode": False, "prefillfirst": True, "prefill": True}
NO_CONFIG = (
    "no configuration: the built-in default of the llm-d router uses prefix-cache-scorer, "
    "which this router does not play; pass --config-file or --config-text"
)


@dataclass(frozen=True)
class Config:
    """A usable configuration."""

    plugins: Mapping[str, Plugin]
    handler: Handler
    screeners: tuple[Screener, ...]
    parsers: frozenset[str]
    flow_control: bool
    bands: frozenset[int]
    scrapes: bool
    warnings: tuple[str, ...] = ()


def load_config(text: str, *, allow_experimental: bool = False) -> Config:
    """The configuration of a document; ConfigError with the first problem."""
    if not text.strip():
        raise ConfigError(0, NO_CONFIG)
    document = read_document(text)
    gates = _gates(document.get("featureGates", []))
    declared = _declared(document.get("plugins", []))
    profiles = _checked_profiles(document.get("schedulingProfiles", []), declared)
    flow = document.get("flowControl", {})
    sections.check_detector(document, declared)
    plugins = _made(document.get("plugins", []), declared)
    sections.check_policies(flow, plugins, gates["flowControl"])
    parsers = _parsers(document, plugins)
    handler, plugins = _handler(document, profiles, plugins)
    scrapes = sections.data_layer(document.get("dataLayer", {}), plugins)
    for plugin in plugins.values():
        if plugin.type in catalog.ALPHA and not allow_experimental:
            raise ConfigError(
                9,
                f"plugin '{plugin.name}' (type: '{plugin.type}') has Alpha stability level, "
                "but command line flag --allow-experimental-plugins is not set",
            )
    if gates["flowControl"]:
        sections.check_bands(flow)
    plugins = {**plugins, **_injected(plugins, document)}
    bands = (
        {band.get("priority", 0) for band in flow.get("priorityBands", [])} if gates["flowControl"] else set()
    )
    return Config(
        plugins=plugins,
        handler=handler,
        screeners=tuple(p.played for p in plugins.values() if isinstance(p.played, Screener)),
        parsers=parsers,
        flow_control=gates["flowControl"],
        bands=frozenset(bands | {0}),
        scrapes=scrapes,
        warnings=tuple(sections.warnings(document, gates["flowControl"])),
    )


def example_config(set_name: str) -> str:
    """The configuration that was run with the real llm-d router for one DisaggregatedSet (needs the Alpha flag)."""
    decider = "always-disagg-pd-decider"
    types = ["queue-scorer", "prefill-filter", "decode-filter", "max-score-picker", decider]
    revision = {
        "name": "revision",
        "headerName": "x-disagg-revision",
        "labelKey": "disaggregatedset.x-k8s.io/revision",
        "mode": "strict",
    }
    screening = {
        "scope": {"labelSelector": f"disaggregatedset.x-k8s.io/name={set_name}"},
        "headerSelectors": [revision],
        "revisionGating": {"mode": "max-role", "requireRoles": {"values": ["prefill", "decode"]}},
    }
    document = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "featureGates": ["flowControl"],
        "plugins": [
            *({"type": kind} for kind in types),
            {"type": DISAGG, "parameters": {"deciders": {"prefill": decider}}},
            {"type": "disaggregatedset-rollout-screener", "parameters": screening},
        ],
        "schedulingProfiles": [
            {
                "name": role,
                "plugins": [
                    {"pluginRef": ref} for ref in (f"{role}-filter", "queue-scorer", "max-score-picker")
                ],
            }
            for role in ("prefill", "decode")
        ],
        "flowControl": {"priorityBands": [{"priority": 100}]},
    }
    return yaml.safe_dump(document, sort_keys=False)


def _injected(plugins: Mapping[str, Plugin], document: Doc) -> dict[str, Plugin]:
    """What the llm-d router adds by itself, as far as this one plays it: default policies and the metrics source."""
    names = sorted(catalog.BUILT_IN)
    layer = document.get("dataLayer", {})
    listed = {source.get("pluginRef") for source in layer.get("sources", [])}
    # A metrics source by another name does not count as the metrics source.
    if layer.get("injectDefaults", True) and "metrics-data-source" not in listed:
        names += ["metrics-data-source", "core-metrics-extractor"]
    return {name: Plugin(name, name) for name in names if name not in plugins}


def _gates(listed: list[str]) -> dict[str, bool]:
    gates = dict(catalog.GATES)
    for entry in listed:
        name, equals, rest = entry.partition("=")
        if name not in gates:
            raise ConfigError(
                2, f"feature gate validation failed: feature gate '{name}' is unknown or unregistered"
            )
        value = rest.split("=")[0].strip()
        try:
            gates[name] = parse_bool(value.lower()) if equals else True
        except ValueError as error:
            raise ConfigError(
                3,
                f"feature gate validation failed: {value} is not a valid value for the feature gate {name} "
                f"(error: {error})",
            ) from None
    return gates


def _declared(listed: list[Doc]) -> dict[str, str]:
    declared: dict[str, str] = {}
    for entry in listed:
        name, kind = entry.get("name") or entry.get("type", ""), entry.get("type", "")
        if not kind:
            raise ConfigError(4, f"configuration validation failed: plugin '{name}' is missing a type")
        if name in declared:
            raise ConfigError(5, f"configuration validation failed: duplicate plugin name '{name}'")
        if kind not in catalog.PLAYED and kind not in catalog.NOT_PLAYED:
            raise ConfigError(6, f"configuration validation failed: plugin type '{kind}' is not registered")
        declared[name] = kind
    for name, kind in declared.items():
        if kind in catalog.NOT_PLAYED:
            raise ConfigError(
                0, f"plugin '{name}': the llm-d router knows type '{kind}', but this router does not play it"
            )
    return declared


def _checked_profiles(listed: list[Doc], declared: Mapping[str, str]) -> list[Doc]:
    failed = "configuration validation failed: scheduling profile validation failed: "
    names: list[str] = []
    for index, profile in enumerate(listed):
        name = profile.get("name", "")
        if not name:
            raise ConfigError(11, f"{failed}schedulingProfiles[{index}] is missing a name")
        if name in names:
            raise ConfigError(11, f"{failed}schedulingProfiles[{index}] has duplicate name '{name}'")
        names.append(name)
        for position, entry in enumerate(profile.get("plugins", [])):
            ref = entry.get("pluginRef", "")
            if not ref:
                raise ConfigError(
                    12, f"{failed}schedulingProfiles[{name}].plugins[{position}] is missing a 'pluginRef'"
                )
            if ref not in declared:
                raise ConfigError(
                    12, f"{failed}schedulingProfiles[{name}] references undefined plugin '{ref}'"
                )
    return listed


def _made(listed: list[Doc], declared: Mapping[str, str]) -> dict[str, Plugin]:
    given = {entry.get("name") or entry["type"]: entry.get("parameters") for entry in listed}
    for name, kind in declared.items():
        if kind == DISAGG:
            decider = _disagg_fields(name, given[name])["deciders"].get("prefill", "")
            graph = "plugin instantiation failed: failed to build plugin dependency graph: "
            if decider and decider not in declared:
                raise ConfigError(8, f"{graph}a plugin has a dependency on the unregistered plugin {decider}")
            if decider and declared[decider] == DISAGG:
                raise ConfigError(8, f"{graph}cycle detected: graph is not a DAG")
    return {
        name: Plugin(name, kind, parameters.make(name, kind, given[name])) for name, kind in declared.items()
    }


def _disagg_fields(name: str, given: Any) -> Doc:
    found = parameters.fields(name, DISAGG, given, {"stageOrder": str, "profiles": dict, "deciders": dict})
    roles: Mapping[str, type | tuple[type, ...]] = {"decode": str, "prefill": str, "encode": str}
    profiles = parameters.fields(name, DISAGG, found.get("profiles"), roles)
    deciders = parameters.fields(name, DISAGG, found.get("deciders"), {"prefill": str, "encode": str})
    order = found.get("stageOrder", "").lower().replace("-", "").replace("_", "")
    if order not in _STAGE_ORDERS:
        raise parameters.broken(name, DISAGG, f'invalid stage order "{found["stageOrder"]}"')
    if _STAGE_ORDERS[order] and deciders.get("prefill"):
        raise parameters.broken(name, DISAGG, "prefill decider is not supported in prefill-first stage order")
    if deciders.get("encode"):
        raise parameters.not_played(name, DISAGG, "an encode decider")
    return {"prefill_first": _STAGE_ORDERS[order], "profiles": profiles, "deciders": deciders}


def _parsers(document: Doc, plugins: dict[str, Plugin]) -> frozenset[str]:
    listed = document.get("requestHandler", {}).get("parsers")
    if listed is None:
        listed = [document["parser"]] if "parser" in document else []
    types: set[str] = set()
    for entry in listed:
        ref = entry.get("pluginRef", "")
        if ref not in plugins:
            if ref in catalog.NOT_PLAYED:
                raise ConfigError(
                    0, f"parser '{ref}' is known to the llm-d router, but this router does not play it"
                )
            if ref not in catalog.PLAYED:
                raise ConfigError(
                    17, f"failed to apply parser defaults: plugin type '{ref}' not found in registry"
                )
            plugins[ref] = Plugin(ref, ref)
        if plugins[ref].type not in catalog.PARSERS:
            raise ConfigError(17, f'parser registry build failed: the plugin "{ref}" is not a parser plugin')
        types.add(plugins[ref].type)
    for name in sorted(catalog.PARSERS) if not types else ():
        plugins.setdefault(name, Plugin(name, name))
    return frozenset(types) or catalog.PARSERS


def _profile(name: str, entries: list[tuple[Plugin, float]], fallback: Picker) -> Profile:
    filters: list[LabelFilter] = []
    scorers: list[tuple[Scorer, float]] = []
    picker: Picker | None = None
    for plugin, weight in entries:
        if isinstance(plugin.played, LabelFilter):
            filters.append(plugin.played)
        elif isinstance(plugin.played, Scorer):
            scorers.append((plugin.played, weight))
        elif isinstance(plugin.played, Picker):
            if picker is not None:
                raise ConfigError(
                    13,
                    f"scheduler config build failed: failed to set '{plugin.name}/{plugin.type}' as picker of profile "
                    f"'{name}', already have a registered picker plugin '{picker.name}/{picker.type}'",
                )
            picker = plugin.played
    return Profile(name, tuple(filters), tuple(scorers), picker or fallback)


def _handler(
    document: Doc, listed: list[Doc], plugins: dict[str, Plugin]
) -> tuple[Handler, dict[str, Plugin]]:
    failed = "scheduler config build failed: "
    declared_picker = next((p.played for p in plugins.values() if isinstance(p.played, Picker)), None)
    fallback = declared_picker or Picker("max-score-picker", "max-score-picker")
    if declared_picker is None:
        plugins = {**plugins, fallback.name: Plugin(fallback.name, fallback.type, fallback)}
    if not listed:
        everything = [(plugin, 1.0) for plugin in plugins.values()]
        profiles = {"default": _profile("default", everything, fallback)}
    else:
        profiles = {}
        for one in listed:
            entries = [(plugins[e["pluginRef"]], e.get("weight", 1.0)) for e in one.get("plugins", [])]
            profiles[one["name"]] = _profile(one["name"], entries, fallback)
    handlers = [plugin for plugin in plugins.values() if catalog.PLAYED[plugin.type] == "handler"]
    if len(handlers) > 1:
        both = ", ".join(f"'{plugin.name}'" for plugin in handlers)
        raise ConfigError(14, f"{failed}multiple profile handlers found ({both}); only one is allowed")
    if not handlers:
        if len(profiles) > 1:
            raise ConfigError(15, f"{failed}no profile handler configured")
        handlers = [Plugin(SINGLE, SINGLE)]
        plugins = {**plugins, SINGLE: handlers[0]}
    if handlers[0].type == SINGLE:
        if len(profiles) > 1:
            raise ConfigError(
                16, f"{failed}single profile handler is intended to be used with a single profile"
            )
        return SingleHandler(handlers[0].name, next(iter(profiles.values()))), plugins
    return _disagg(document, handlers[0].name, profiles, plugins), plugins


def _disagg(
    document: Doc, name: str, profiles: Mapping[str, Profile], plugins: Mapping[str, Plugin]
) -> DisaggHandler:
    given = next(e.get("parameters") for e in document["plugins"] if (e.get("name") or e["type"]) == name)
    found = _disagg_fields(name, given)
    decider = found["deciders"].get("prefill", "")
    if decider and catalog.PLAYED[plugins[decider].type] != "decider":
        raise parameters.broken(name, DISAGG, f"plugin {decider} does not implement a prefill decider")
    return DisaggHandler(
        name=name,
        decode=profiles.get(found["profiles"].get("decode") or "decode"),
        prefill=profiles.get(found["profiles"].get("prefill") or "prefill"),
        decider=plugins[decider].played if decider else None,
        prefill_first=found["prefill_first"],
    )
