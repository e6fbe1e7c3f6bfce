"""The command line, read as the llm-d router reads it: `--name value`, `--name=value`, a bool flag needs no value.

A bool flag takes a value only after "=", as with Go flag parsers. A flag that the router does not know, and an argument
that belongs to no flag, end the start. Names and defaults: options of the llm-d router, main of 2026-08-22.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.demo.router.quantities import BadValue, duration_s

BOOLS: dict[str, bool] = {
    "allow-experimental-plugins": False,
    "disable-endpoint-subset-filter": False,
    "emit-endpoint-scores": False,
    "enable-cert-reload": False,
    "enable-grpc-stream-metrics": False,
    "enable-pprof": True,
    "ha-enable-leader-election": False,
    "health-checking": False,
    "metrics-endpoint-auth": True,
    "secure-serving": True,
    "tracing": True,
    "zap-devel": False,
}
INTS: dict[str, int] = {"grpc-health-port": 9003, "grpc-port": 9002, "metrics-port": 9090, "v": 2}
DURATIONS: dict[str, str] = {
    "drain-timeout": "30s",
    "metrics-staleness-threshold": "2s",
    "refresh-metrics-interval": "50ms",
    "refresh-prometheus-metrics-interval": "5s",
}
STRINGS: dict[str, str] = {
    "cert-path": "",
    "config-file": "",
    "config-text": "",
    "endpoint-selector": "",
    "endpoint-target-ports": "",
    "grpc-max-recv-msg-size": "",
    "grpc-max-send-msg-size": "",
    "metrics-cert-dir": "",
    "metrics-client-ca-file": "",
    "pool-group": "inference.networking.k8s.io",
    "pool-name": "",
    "pool-namespace": "",
    "zap-encoder": "console",
    "zap-log-level": "",
    "zap-stacktrace-level": "",
    "zap-time-encoding": "",
}
# Known, and refused when set: their work went to engineConfigs of the core-metrics-extractor.
DEPRECATED = frozenset(
    {
        "cache-info-metric",
        "kv-cache-usage-percentage-metric",
        "lora-info-metric",
        "total-queued-requests-metric",
        "total-running-requests-metric",
    }
)
OURS: dict[str, str] = {"bind": ""}

# What the real router does with these, ours does not do; better no start than a wrong one.
_NOT_PLAYED = {
    "ha-enable-leader-election": "leader election is not played by this router",
    "metrics-endpoint-auth": "metrics for authorised readers only are not played by this router; "
    "pass --metrics-endpoint-auth=false",
    "secure-serving": "TLS is not played by this router; pass --secure-serving=false",
}
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class FlagError(ValueError):
    """The command line cannot be used; the text is the one error line."""


@dataclass(frozen=True)
class Options:
    """What the router needs of its command line. Times in seconds, empty text = not given."""

    pool_name: str
    pool_namespace: str
    config_file: str
    config_text: str
    bind: str
    grpc_port: int
    grpc_health_port: int
    metrics_port: int
    allow_experimental: bool
    refresh_metrics_s: float
    staleness_s: float
    drain_s: float
    json_logs: bool
    verbosity: int


def parse_bool(text: str) -> bool:
    """A bool as Go's strconv.ParseBool reads it; ValueError otherwise."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f'strconv.ParseBool: parsing "{text}": invalid syntax')


def read_flags(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Options:
    """Options of a command line; FlagError for what the llm-d router refuses and for what ours does not play."""
    env = os.environ if environment is None else environment
    given = _given(arguments)
    values: dict[str, Any] = {**BOOLS, **INTS, **DURATIONS, **STRINGS, **OURS, **given}
    for name in sorted(DEPRECATED & given.keys()):
        raise FlagError(
            f'flag "{name}" is deprecated and cannot be used; '
            "configure metrics via engineConfigs in EndpointPickerConfig instead"
        )
    if bool(values["pool-name"]) == bool(values["endpoint-selector"]):
        raise FlagError("either pool-name or endpoint-selector must be set")
    if values["config-file"] and values["config-text"]:
        raise FlagError('both the "config-file" and "config-text" flags cannot be set at the same time')
    if values["endpoint-selector"]:
        raise FlagError("--endpoint-selector is not played by this router; pass --pool-name")
    if values["pool-group"] != STRINGS["pool-group"]:
        raise FlagError(f"--pool-group: only {STRINGS['pool-group']} is supported")
    for name, why in _NOT_PLAYED.items():
        if values[name]:
            raise FlagError(why)
    return Options(
        pool_name=values["pool-name"],
        pool_namespace=values["pool-namespace"] or env.get("NAMESPACE", "") or "default",
        config_file=values["config-file"],
        config_text=values["config-text"],
        bind=values["bind"] or env.get("POD_IP", "") or "0.0.0.0",
        grpc_port=values["grpc-port"],
        grpc_health_port=values["grpc-health-port"],
        metrics_port=values["metrics-port"],
        allow_experimental=values["allow-experimental-plugins"],
        refresh_metrics_s=duration_s(values["refresh-metrics-interval"]),
        staleness_s=duration_s(values["metrics-staleness-threshold"]),
        drain_s=duration_s(values["drain-timeout"]),
        json_logs=values["zap-encoder"] == "json",
        verbosity=values["v"],
    )


def _given(arguments: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-") or argument in ("-", "--"):
            raise FlagError(f"unexpected argument: {argument}")
        name, equals, value = argument.lstrip("-").partition("=")
        short = not argument.startswith("--")
        if not _known(name) or (short and name != "v"):
            raise FlagError(f"unknown flag: {argument.partition('=')[0]}")
        if not equals:
            if name in BOOLS:
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                raise FlagError(f"flag needs an argument: --{name}")
        given[name] = _value(name, value)
    return given


def _known(name: str) -> bool:
    return any(name in known for known in (BOOLS, INTS, DURATIONS, STRINGS, DEPRECATED, OURS))


def _value(name: str, text: str) -> bool | int | str:
    try:
        if name in BOOLS:
            return parse_bool(text)
        if name in INTS:
            return int(text, 0)
        if name in DURATIONS:
            duration_s(text)
        if name == "zap-encoder" and text not in ("json", "console"):
            raise ValueError(f'invalid encoder value "{text}"')
    except (ValueError, BadValue) as error:
        raise FlagError(f'invalid argument "{text}" for "--{name}" flag: {error}') from None
    return text
