"""The configuration is read as the llm-d router reads it: recorded verdicts, and what this router does not play."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deploy.demo.router import catalog
from deploy.demo.router.config import example_config, load_config
from deploy.demo.router.documents import ConfigError, read_document
from deploy.demo.router.flags import FlagError, read_flags
from deploy.demo.router.quantities import BadValue, duration_s, quantity
from tests.demo.router.driving import PLAIN, ROOT, command

RECORDED = Path(__file__).parent / "recorded"
VECTORS: list[dict[str, Any]] = json.loads((RECORDED / "epp-config.json").read_text())["vectors"]
OUT_OF_REACH: dict[str, str] = json.loads((RECORDED / "out-of-reach.json").read_text())
REPLAYED = [vector for vector in VECTORS if vector["id"] not in OUT_OF_REACH]
# These parts made the recorded process start without a cluster; they are no part of what an operator would push.
DISCOVERY = (
    "- {type: file-discovery, parameters: {path: endpoints.yaml}}\n",
    "  discovery: {pluginRef: file-discovery}\n",
    "dataLayer: {discovery: {pluginRef: file-discovery}}\n",
    '{"type":"file-discovery","parameters":{"path":"endpoints.yaml"}},',
    '{"type":"file-discovery","parameters":{"path":"endpoints.yaml"}}',
    '"discovery":{"pluginRef":"file-discovery"}',
)
# Its point is the reference to a discovery plugin that is not there.
KEEPS_DISCOVERY = {"doc-plugins-absent"}


def pushed(vector: dict[str, Any]) -> str:
    """The document of a vector as an operator would push it."""
    text = str(vector["yaml"])
    for part in DISCOVERY if vector["id"] not in KEEPS_DISCOVERY else ():
        text = text.replace(part, "")
    return text


def verdict(vector: dict[str, Any]) -> tuple[bool, int | str | None]:
    """(accepted, class of the error) of a vector, here."""
    flags = vector.get("flags", [])
    named = [] if vector.get("without_pool_name") else ["--pool-name=vec"]
    try:
        options = read_flags([*named, "--config-file=f", *PLAIN, *flags], {})
        load_config(pushed(vector), allow_experimental=options.allow_experimental)
    except FlagError:
        return False, "flags"
    except ConfigError as error:
        return False, error.rule
    return True, None


@pytest.mark.parametrize("vector", REPLAYED, ids=lambda vector: vector["id"])
def test_recorded_verdict(vector: dict[str, Any]) -> None:
    accepted, rule = verdict(vector)
    assert accepted == vector["accepted"], vector.get("error")
    if not accepted:
        assert rule == vector["rule"], vector.get("error")


def test_what_is_out_of_reach_is_refused_and_never_accepted() -> None:
    assert OUT_OF_REACH.keys() <= {vector["id"] for vector in VECTORS}
    for vector in VECTORS:
        if vector["id"] in OUT_OF_REACH:
            assert verdict(vector) == (False, 0), vector["id"]
    assert len(REPLAYED) >= 115


# Injected by the llm-d router; the first is how its vectors start, the second acts on a queue that is not here.
NOT_HERE = {"file-discovery", "utilization-detector"}


@pytest.mark.parametrize("vector", [v for v in REPLAYED if v["accepted"]], ids=lambda vector: vector["id"])
def test_recorded_plugins(vector: dict[str, Any]) -> None:
    config = load_config(pushed(vector), allow_experimental=True)
    shown = {p.name if p.name == p.type else f"{p.name} = {p.type}" for p in config.plugins.values()}
    assert shown == set(vector["plugins"]) - NOT_HERE


def test_every_recorded_error_has_a_message_that_names_the_culprit() -> None:
    for vector in REPLAYED:
        named = {"fc-negative-band": "priority band 5", "scr-no-scope": "scope.labelSelector is required"}
        if vector["id"] in named:
            with pytest.raises(ConfigError, match=named[vector["id"]]):
                load_config(pushed(vector), allow_experimental=True)


def test_the_example_is_the_configuration_that_was_run() -> None:
    config = load_config(example_config("qwen"), allow_experimental=True)
    assert config.flow_control
    assert config.bands == {0, 100}
    assert config.screeners[0].mode == "max-role"
    assert config.screeners[0].scope.matches({"disaggregatedset.x-k8s.io/name": "qwen"})
    assert not config.screeners[0].scope.matches({"disaggregatedset.x-k8s.io/name": "other"})
    with pytest.raises(ConfigError, match="Alpha stability level"):
        load_config(example_config("qwen"))


def with_plugin(entry: str) -> str:
    """A small document that declares one more plugin."""
    return f"plugins:\n- {{type: max-score-picker}}\n- {entry}\n"


@pytest.mark.parametrize("kind", sorted(catalog.NOT_PLAYED))
def test_a_plugin_that_only_the_real_router_has_is_refused_by_name(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"'{kind}', but this router does not play it") as caught:
        load_config(with_plugin(f"{{type: {kind}}}"), allow_experimental=True)
    assert caught.value.rule == 0


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ("{scope: {labelSelector: a=b}}", "revisionGating is required"),
        ("{scope: {labelSelector: a=b}, revisionGating: {mode: sum}}", "requireRoles is required"),
        ("{scope: {labelSelector: a=b}, revisionGating: {mode: most}}", "must be one of sum"),
        (
            "{scope: {labelSelector: a=b}, revisionGating: {mode: sum, requireRoles: {values: []}}}",
            "at least one role",
        ),
        (
            "{scope: {labelSelector: a=b}, revisionGating: {mode: sum, requireRoles: {values: [x, x]}}}",
            "duplicate role",
        ),
        (
            "{scope: {labelSelector: a=b}, revisionGating: {mode: disabled}, "
            "headerSelectors: [{name: r, headerName: h, labelKey: k, mode: hard}]}",
            "strict.prefer",
        ),
        (
            "{scope: {labelSelector: a=b}, revisionGating: {mode: disabled}, gating: 1}",
            'unknown field "gating"',
        ),
        ("{scope: {labelSelector: 'a ~ b'}, revisionGating: {mode: disabled}}", "valid label selector"),
    ],
)
def test_screener_parameters(parameters: str, problem: str) -> None:
    entry = f"{{type: disaggregatedset-rollout-screener, parameters: {parameters}}}"
    with pytest.raises(ConfigError, match=problem) as caught:
        load_config(with_plugin(entry), allow_experimental=True)
    assert caught.value.rule == 7


def test_the_disaggregation_handler_needs_a_decider_that_is_one() -> None:
    entry = "{type: disagg-profile-handler, parameters: {deciders: {prefill: max-score-picker}}}"
    with pytest.raises(ConfigError, match="does not implement a prefill decider"):
        load_config(with_plugin(entry))


def test_a_document_needs_no_plugins_but_some_text() -> None:
    config = load_config("kind: EndpointPickerConfig\n")
    assert set(config.plugins) >= {"max-score-picker", "single-profile-handler", "openai-parser"}
    with pytest.raises(ConfigError, match="prefix-cache-scorer"):
        load_config(" \n")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "plugins",
                    "type",
                    "name",
                    "parameters",
                    "schedulingProfiles",
                    "pluginRef",
                    "flowControl",
                    "weight",
                ]
                + ["priorityBands", "priority", "maxBytes", "dataLayer", "featureGates", "scope", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(DOCUMENTS)
def test_any_document_is_accepted_or_refused_with_one_error(document: Any) -> None:
    text = yaml.safe_dump(document)
    try:
        load_config(text, allow_experimental=True)
    except ConfigError as error:
        assert str(error)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read_document(text)
    except ConfigError as error:
        assert error.rule == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("0s", 0), ("50ms", 0.05), ("1h30m0.5s", 5400.5), ("-1s", -1), ("1.5s", 1.5), (".5s", 0.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "20", "1d", "s", "1 s", "-", "fast"])
def test_no_durations(text: str) -> None:
    with pytest.raises(BadValue):
        duration_s(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", 1),
        ("-500m", -1),
        ("8k", 8000),
        ("1Gi", 1 << 30),
        ("1.5Gi", 3 << 29),
        ("1e3", 1000),
        ("100E", 0),
    ]
    + [("0", 0), ("-1Ki", -1024), ("1500M", 1_500_000_000)],
)
def test_quantities(text: str, value: int) -> None:
    assert quantity(text) == value


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_whole_quantities_are_themselves(value: int) -> None:
    assert quantity(str(value)) == value


@pytest.mark.parametrize("text", ["many", "1 Gi", "1GB", "", "1.2.3"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(BadValue):
        quantity(text)


FLAGS = ["--pool-name=p", *PLAIN]


def test_flags_in_both_spellings() -> None:
    options = read_flags(
        ["--pool-name", "p", "--pool-namespace", "n", "--secure-serving=false", "--metrics-endpoint-auth=F"]
        + ["--allow-experimental-plugins", "--grpc-port", "19002", "--grpc-health-port=19003", "-v", "4"]
        + ["--zap-encoder", "json", "--drain-timeout=1m"],
        {},
    )
    assert (options.pool_name, options.pool_namespace) == ("p", "n")
    assert (options.grpc_port, options.grpc_health_port, options.metrics_port) == (19002, 19003, 9090)
    assert options.allow_experimental
    assert options.json_logs
    assert (options.verbosity, options.drain_s) == (4, 60.0)


def test_namespace_and_address_come_from_the_environment() -> None:
    options = read_flags(FLAGS, {"NAMESPACE": "serving", "POD_IP": "127.3.0.9"})
    assert (options.pool_namespace, options.bind) == ("serving", "127.3.0.9")
    options = read_flags(
        [*FLAGS, "--pool-namespace=n", "--bind=127.0.0.2"], {"NAMESPACE": "x", "POD_IP": "y"}
    )
    assert (options.pool_namespace, options.bind) == ("n", "127.0.0.2")
    assert read_flags(FLAGS, {}).bind == "0.0.0.0"
    assert read_flags(FLAGS, {}).pool_namespace == "default"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--pool-nam=x"], "unknown flag: --pool-nam"),
        (["-pool-name=x"], "unknown flag"),
        (["--tracing", "false"], "unexpected argument: false"),
        (["--grpc-port"], "needs an argument"),
        (["--grpc-port=http"], "invalid argument"),
        (["--tracing=perhaps"], "ParseBool"),
        (["--drain-timeout=30"], "missing unit"),
        (["--secure-serving"], "TLS is not played"),
        (["--metrics-endpoint-auth=true"], "authorised readers"),
        (["--ha-enable-leader-election"], "leader election"),
        (["--endpoint-selector=a=b"], "either pool-name or endpoint-selector"),
    ],
)
def test_flags_that_end_the_start(more: list[str], problem: str) -> None:
    with pytest.raises(FlagError, match=problem):
        read_flags([*FLAGS, *more], {})


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--pool-name=p", "--unheard-of=1"], "unknown flag: --unheard-of"),
        ([*FLAGS, "--config-text=flowcontrol: {}"], 'unknown field "flowcontrol"'),
        ([*FLAGS, "--config-file=/nowhere/x.yaml"], "No such file"),
        ([*FLAGS, "--config-text=kind: EndpointPickerConfig"], "unable to load in-cluster config"),
    ],
)
def test_a_start_that_cannot_be_ends_with_one_error_line(arguments: list[str], problem: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST")}
    done = subprocess.run(
        command(*arguments), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30
    )
    errors = [line for line in done.stderr.splitlines() if " ERROR " in line]
    assert done.returncode == 1
    assert len(errors) == 1
    assert problem in errors[0]
