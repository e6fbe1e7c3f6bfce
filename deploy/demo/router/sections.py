"""The sections of a configuration that this router only checks: flow control, data layer, deprecated fields."""

from __future__ import annotations

from collections.abc import Mapping

from deploy.demo.router import catalog
from deploy.demo.router.documents import ConfigError, Doc
from deploy.demo.router.parameters import Plugin
from deploy.demo.router.screener import Screener

_DATA = "data layer config build failed: "


def check_detector(document: Doc, declared: Mapping[str, str]) -> None:
    """The saturation detector must be one, checked with the gate off too; the newer of the two fields wins."""
    new = document.get("flowControl", {}).get("saturationDetector")
    ref = (document.get("saturationDetector", {}) if new is None else new).get("pluginRef", "")
    if ref in ("", "utilization-detector"):
        return
    failed = "configuration validation failed: saturation detector validation failed: "
    if ref not in declared:
        raise ConfigError(21, f"{failed}saturation detector references undefined plugin '{ref}'")
    raise ConfigError(21, f"plugin '{ref}' is not a saturation detector (type: {declared[ref]})")


def check_policies(flow: Doc, plugins: Mapping[str, Plugin], gate: bool) -> None:
    """References of the flow control section: checked with the gate on only, as the llm-d router does."""
    if not gate:
        return
    wanted = [("limit", flow.get("usageLimitPolicyPluginRef") or "static-usage-limit-policy")]
    bands = [flow.get("defaultPriorityBand", {}), flow.get("defaultNegativePriorityBand", {})]
    for band in bands + flow.get("priorityBands", []):
        wanted.append(("fairness", band.get("fairnessPolicyRef") or "global-strict-fairness-policy"))
        wanted.append(("ordering", band.get("orderingPolicyRef") or "fcfs-ordering-policy"))
    for kind, ref in wanted:
        if ref not in plugins and ref not in catalog.BUILT_IN:
            raise ConfigError(22, f'failed to load flow control config: plugin "{ref}" not found')
        actual = plugins[ref].type if ref in plugins else ref
        if catalog.PLAYED[actual] != kind:
            raise ConfigError(
                23,
                f'failed to load flow control config: plugin "{ref}" (type: {actual}) is no {kind} policy',
            )


def check_bands(flow: Doc) -> None:
    """Caps, priorities and times of the flow control section, for a router with the gate on."""
    failed = "failed to load flow control config: "
    named = [("global", flow), ("default priority band", flow.get("defaultPriorityBand", {}))]
    named.append(("default negative priority band", flow.get("defaultNegativePriorityBand", {})))
    named += [(f"priority band {band.get('priority', 0)}", band) for band in flow.get("priorityBands", [])]
    for name, section in named:
        for field, shown in (("maxBytes", "MaxBytes"), ("maxRequests", "MaxRequests")):
            if section.get(field, 0) < 0:
                raise ConfigError(24, f"{failed}{name} {shown} must be non-negative, got {section[field]}")
    seen: set[int] = set()
    for band in flow.get("priorityBands", []):
        priority = band.get("priority", 0)
        if priority in seen:
            raise ConfigError(25, f"{failed}duplicate priority level {priority}")
        seen.add(priority)
    for field in ("defaultRequestTTL", "noEndpointRequestTTL"):
        if flow.get(field, 0.0) < 0:
            raise ConfigError(26, f"{failed}{field} cannot be negative, but got {flow[field]:g}s")


def data_layer(section: Doc, plugins: Mapping[str, Plugin]) -> bool:
    """Whether endpoints' metrics pages are read; ConfigError for a data layer that the llm-d router refuses."""
    for field in ("peerDiscovery", "crossReplicaSyncerPluginRef"):
        if section.get(field):
            raise ConfigError(0, f"dataLayer.{field} is not played by this router")
    ref = section.get("discovery", {}).get("pluginRef", "")
    if ref in plugins:
        raise ConfigError(20, f'discovery: plugin "{ref}" does not implement EndpointDiscovery')
    if ref:
        raise ConfigError(20, f'discovery: no plugin found with name "{ref}"')
    names: list[str] = []
    extracts = False
    for source in section.get("sources", []):
        name = source.get("pluginRef", "")
        if name in names:
            raise ConfigError(18, f'{_DATA}duplicate polling source name "{name}"')
        names.append(name)
        extracts = _source(name, source, plugins) or extracts
    if section.get("injectDefaults", True):
        return True
    scorers = [p for p in plugins.values() if p.type in ("queue-scorer", "kv-cache-utilization-scorer")]
    if scorers and not extracts:
        missing = "failed to create missing data producers - no metrics extractor"
        raise ConfigError(10, f"{missing}, consumed by {scorers[0].name}")
    gated = any(isinstance(p.played, Screener) and p.played.mode != "disabled" for p in plugins.values())
    if not names and not gated:
        raise ConfigError(
            27, "failed to configure datalayer: data layer enabled but no data sources configured"
        )
    return extracts


def _source(name: str, source: Doc, plugins: Mapping[str, Plugin]) -> bool:
    """Whether a data source has an extractor."""
    if name not in plugins or catalog.PLAYED[plugins[name].type] != "source":
        raise ConfigError(18, f"{_DATA}the plugin {name} is not a data source")
    types: list[str] = []
    for entry in source.get("extractors", []):
        extractor = entry.get("pluginRef", "")
        if extractor not in plugins:
            raise ConfigError(18, f"{_DATA}the plugin {extractor} is not registered")
        kind = plugins[extractor].type
        if catalog.PLAYED[kind] != "extractor" or kind in types:
            raise ConfigError(
                18, f"{_DATA}extractor {extractor} of {name} has the wrong type or is there twice"
            )
        types.append(kind)
    return bool(types)


def warnings(document: Doc, gate: bool) -> list[str]:
    """What is accepted and should be said in the log."""
    said: list[str] = []
    if document.get("apiVersion", "").startswith("inference."):
        said.append(f"DEPRECATION: apiVersion {document['apiVersion']} is deprecated")
    if not gate and set(document.get("flowControl", {})) - {"saturationDetector", "enableEviction"}:
        said.append(
            "WARNING: the flowControl config section is set but the flowControl feature gate is disabled; "
            "its settings (other than saturationDetector) are ignored"
        )
    for field, instead in (
        ("saturationDetector", "flowControl.saturationDetector"),
        ("parser", "requestHandler.parsers"),
    ):
        if field in document:
            said.append(f"DEPRECATION: top-level {field} is deprecated, use {instead} instead")
    return said
