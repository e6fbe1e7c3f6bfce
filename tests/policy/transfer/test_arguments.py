"""Engine arguments: every spelling that engines take, nothing guessed, nothing raised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.transfer.arguments import engine_container, read_container, read_engine
from policy.transfer.command import parse_image
from policy.transfer.connectors import read_connectors
from policy.transfer.values import Sourced


def vllm(*words: Any, env: Any = (), **given: Any) -> Any:
    return read_engine(command=["vllm", "serve"], args=list(words), env=env, image="", **given)


def values(read: Any) -> dict[str, Any]:
    return {name: found.value for name, found in read.flags.items()}


@pytest.mark.parametrize(
    ("command", "args", "image", "kind"),
    [
        (["vllm", "serve"], ["m"], "", "vllm"),
        (None, ["vllm", "serve", "m"], "", "vllm"),
        (["/usr/local/bin/vllm", "serve", "m"], None, "", "vllm"),
        (["python3", "-m", "vllm.entrypoints.openai.api_server"], ["--model", "m"], "", "vllm"),
        (["python", "-m"], ["vllm.entrypoints.openai.api_server", "--model=m"], "", "vllm"),
        (None, ["--model", "m"], "docker.io/vllm/vllm-openai:v0.30.0", "vllm"),
        (None, ["m"], "mirror.example/vllm/vllm-openai@sha256:" + "0" * 64, "vllm"),
        (["numactl", "--cpunodebind=0", "vllm", "serve", "m"], None, "", "vllm"),
        (["python3", "-m", "dynamo.vllm", "--model", "m"], None, "", "vllm"),
        (["python3", "-m", "sglang.launch_server"], ["--model-path", "m"], "", "sglang"),
        (["sglang", "serve"], ["--model-path", "m"], "", "sglang"),
        (["trtllm-serve"], ["m", "--tp_size", "4"], "", "trtllm"),
        (["trtllm-serve", "serve", "m"], None, "", "trtllm"),
        (["python3", "-m", "dynamo.trtllm", "--model-path", "m"], None, "", "trtllm"),
    ],
)
def test_launchers_and_the_model(command: Any, args: Any, image: str, kind: str) -> None:
    read = read_engine(command=command, args=args, env=[], image=image)
    assert read.kind == kind
    assert read.value("model") == "m"


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (["/bin/sh", "-c"], ["exec vllm serve m --block-size 16"]),
        (["bash", "-lc", "vllm serve m"], None),
        (["tini", "--", "/bin/bash", "-c"], ["vllm serve m"]),
        (["/scripts/start.sh"], ["--model", "m"]),
        (["python3", "/app/serve.py"], ["--model", "m"]),
        (None, ["bash", "-c", "vllm serve m"]),
    ],
)
def test_scripts_and_unknown_programs_are_not_guessed_at(command: Any, args: Any) -> None:
    read = read_engine(command=command, args=args, env=[], image="vllm/vllm-openai:v0.30.0")
    assert read.kind == "unknown"
    assert read.flags == {}
    assert read.hidden("block-size") is not None
    assert not read.readable
    assert any("unknown" in warning for warning in read.warnings)


def test_an_own_entry_point_hides_what_is_not_given() -> None:
    read = read_engine(command=None, args=["--block-size=16"], env=[], image="llm-d-cuda:v1", kind="vllm")
    assert (read.kind, read.kind_source) == ("vllm", "told by its metrics")
    assert read.value("block-size") == "16"
    assert read.hidden("block-size") is None
    assert "entry point" in (read.hidden("dtype") or "")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--block-size=16"], {"block-size": "16"}),
        (["--block_size", "16"], {"block-size": "16"}),
        (["--block_size=16", "--block-size", "32"], {"block-size": "32"}),
        (["-tp", "4"], {"tensor-parallel-size": "4"}),
        (["-tp=4"], {"tensor-parallel-size": "4"}),
        (["-q", "fp8"], {"quantization": "fp8"}),
        (["-O3"], {"optimization-level": "3"}),
        (["--enforce-eager", "--dtype", "half"], {"enforce-eager": True, "dtype": "half"}),
        (["--no-enable-prefix-caching"], {"enable-prefix-caching": False}),
        (["--enable-chunked-prefill", "false"], {"enable-chunked-prefill": False}),
        (["--enable-prefix-caching=True"], {"enable-prefix-caching": True}),
        (["--no-frills"], {"frills": False}),
        (["--unknown-switch", "--port=1"], {"unknown-switch": True, "port": "1"}),
        (["--seed", "-1"], {"seed": "-1"}),
        (["--chat-template", "a b -c"], {"chat-template": "a b -c"}),
        (["--served-model-name", "a", "b", "--port", "1"], {"served-model-name": ["a", "b"], "port": "1"}),
        (["--served-model-name=a"], {"served-model-name": ["a"]}),
        (["--revision="], {"revision": ""}),
        (["--model=a.b=c"], {"model": "a.b=c"}),
        (["--hf-overrides", '{"rope_theta": 1.5}'], {"hf-overrides": {"rope_theta": 1.5}}),
        (["-sc.method", "eagle3"], {"speculative-config": {"method": "eagle3"}}),
        (
            ["--kv-transfer-config.kv_connector", "NixlConnector", "--kv_transfer_config.kv_role=kv_both"],
            {"kv-transfer-config": {"kv_connector": "NixlConnector", "kv_role": "kv_both"}},
        ),
        (
            ["--kv-transfer-config.x.backends+", "UCX,GDS", "--kv-transfer-config.x.backends+=LIBFABRIC"],
            {"kv-transfer-config": {"x": {"backends": ["UCX", "GDS", "LIBFABRIC"]}}},
        ),
        (
            ["--kv-transfer-config.x.on", "true", "--kv-transfer-config.x.n", "5"],
            {"kv-transfer-config": {"x": {"on": True, "n": 5}}},
        ),
    ],
)
def test_spellings(words: list[str], wanted: dict[str, Any]) -> None:
    assert values(vllm("m", *words)) == {"model": "m"} | wanted


def test_parts_replace_the_whole_as_in_the_engine() -> None:
    read = vllm(
        "m", "--kv-transfer-config.kv_role", "kv_both", "--kv-transfer-config", '{"kv_connector": "A"}'
    )
    assert read.value("kv-transfer-config") == {"kv_role": "kv_both"}
    assert any("in parts" in warning for warning in read.warnings)


def test_sglang_names_are_folded() -> None:
    words = [
        "-m",
        "sglang.launch_server",
        "--model-path",
        "m",
        "--tp",
        "8",
        "--page-size=64",
        "--trust-remote-code",
    ]
    read = read_engine(command=["python3"], args=words, env=[], image="")
    wanted = {"model": "m", "tensor-parallel-size": "8", "page-size": "64", "trust-remote-code": True}
    assert values(read) == wanted


def test_every_value_says_where_it_comes_from() -> None:
    env = [{"name": "VLLM_KV_CACHE_LAYOUT", "value": "HND"}, {"name": "HF_TOKEN", "value": "secret"}]
    read = vllm("m", "--block-size=16", "--dtype", "half", env=env)
    assert read.flags["block-size"] == Sourced("16", "args[1] --block-size")
    assert read.flags["dtype"].source == "args[2] --dtype"
    assert read.flags["model"].source == "args[0] model"
    assert read.env == {"VLLM_KV_CACHE_LAYOUT": Sourced("HND", "env VLLM_KV_CACHE_LAYOUT")}
    assert read.kind_source == "command[0]"


def test_secrets_are_not_kept() -> None:
    env = [{"name": "VLLM_API_KEY", "value": "s3cret"}]
    read = vllm("m", "--api-key", "s3cret", "--hf-token=s3cret", env=env)
    assert "s3cret" not in repr(read)


def test_references_are_resolved_or_said_to_be_unread() -> None:
    env = [
        {"name": "TP", "value": "4"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "KIND", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "kind"}}},
        {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "value": "$(IP)"},
        {"name": "VLLM_KV_CACHE_LAYOUT", "value": "$(KIND)"},
    ]
    read = vllm("m$$", "-tp", "$(TP)", "--dtype=$(KIND)", "--block-size", "$(LWS_GROUP_SIZE)", env=env)
    assert values(read) == {"model": "m$", "tensor-parallel-size": "4"}
    assert "KIND" in (read.hidden("dtype") or "")
    assert "LWS_GROUP_SIZE" in (read.hidden("block-size") or "")
    assert read.env["VLLM_NIXL_SIDE_CHANNEL_HOST"].value == "{field:status.podIP}"
    assert read.hidden("VLLM_KV_CACHE_LAYOUT") is not None


def test_a_file_hides_only_what_is_not_given() -> None:
    read = vllm("m", "--config", "/etc/vllm.yaml", "--dtype=half")
    assert read.hidden("dtype") is None
    assert "/etc/vllm.yaml" in (read.hidden("block-size") or "")
    assert [each.path for each in read.opaque] == ["/etc/vllm.yaml"]
    served = read_engine(
        command=["trtllm-serve"], args=["m", "--extra_llm_api_options", "a.yaml"], env=[], image=""
    )
    assert "a.yaml" in (served.hidden("backend") or "")


def test_variables_from_elsewhere_hide_variables_and_no_flags() -> None:
    read = vllm("m", env_from=[{"secretRef": {"name": "hf"}}])
    assert "secretRef hf" in (read.hidden("VLLM_KV_CACHE_LAYOUT") or "")
    assert read.hidden("block-size") is None


def test_a_shortened_flag_may_stand_for_a_longer_one() -> None:
    read = vllm("m", "--tensor-par", "8")
    assert "shortened" in (read.hidden("tensor-parallel-size") or "")


def test_a_word_after_an_unknown_flag_may_be_the_model() -> None:
    read = vllm("--brand-new", "org/model", "--port", "1")
    assert read.value("model") is None
    assert "--brand-new" in (read.hidden("model") or "")


def test_a_connector_that_is_no_json_is_unknown() -> None:
    read = vllm("m", "--kv-transfer-config", "{kv_connector: NixlConnector}")
    assert read.warnings
    assert read_connectors(read).hidden is not None
    assert read_connectors(read).transfer is None


def test_a_wrapper_chooses_a_connector_itself() -> None:
    read = read_engine(command=["python3", "-m", "dynamo.vllm", "--model", "m"], args=None, env=[], image="")
    assert "dynamo.vllm" in (read.hidden("kv-transfer-config") or "")


def test_several_connectors_are_unfolded() -> None:
    inner = [
        {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"},
        {
            "kv_connector": "NixlConnector",
            "kv_role": "kv_consumer",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"enforce_handshake_compat": "False"},
        },
    ]
    config = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": inner},
    }
    found = read_connectors(vllm("m", "--kv-transfer-config", json.dumps(config)))
    assert [each.name for each in found.found] == ["OffloadingConnector", "NixlConnector"]
    assert found.transfer is not None
    assert (found.transfer.name, found.transfer.wrapped, found.transfer.enforces) == (
        "NixlConnector",
        True,
        False,
    )
    assert found.transfer.load_failure_policy == "recompute"
    assert found.transfer.source.endswith("connectors[1]")


def test_container_of_a_pod_spec() -> None:
    container = {
        "name": "modelserver",
        "image": "vllm/vllm-openai:v0.30.0",
        "args": ["m", "--port=8200"],
        "env": [{"name": "UCX_TLS", "value": "rc"}],
        "envFrom": [{"configMapRef": {"name": "common"}}],
    }
    read = read_container(container)
    assert (read.kind, read.value("port"), read.env["UCX_TLS"].value) == ("vllm", "8200", "rc")


GPU = {"limits": {"nvidia.com/gpu": "8"}}
SIDECAR = {
    "name": "routing-proxy",
    "image": "ghcr.io/llm-d/llm-d-routing-sidecar:v0.5.0",
    "args": ["--port=8000"],
}


@pytest.mark.parametrize(
    ("containers", "name"),
    [
        ([SIDECAR, {"name": "x", "command": ["vllm", "serve", "m"]}], "x"),
        ([SIDECAR, {"name": "a", "resources": GPU}, {"name": "b"}], "a"),
        ([{"name": "a"}, {"name": "modelserver"}], "modelserver"),
        ([SIDECAR, {"name": "only", "command": ["sh", "-c", "vllm serve m"]}], "only"),
        ([SIDECAR], None),
        ([{"name": "a"}, {"name": "b"}], None),
        ([{"name": "a", "resources": GPU}, {"name": "b", "command": ["sglang", "serve"]}], "b"),
        ([], None),
        ("nonsense", None),
    ],
)
def test_the_engine_among_the_containers(containers: Any, name: str | None) -> None:
    spec = {"containers": containers, "initContainers": [{"name": "load", "command": ["vllm", "serve", "m"]}]}
    assert engine_container(spec) == name


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("vllm/vllm-openai:v0.30.0", ("vllm/vllm-openai", "v0.30.0", None)),
        ("r.example:5000/a/b", ("r.example:5000/a/b", None, None)),
        ("r.example:5000/a/b:t@sha256:1", ("r.example:5000/a/b", "t", "sha256:1")),
        ("docker-pullable://a/b@sha256:1", ("a/b", None, "sha256:1")),
        ("sha256:1", ("", None, "sha256:1")),
        ("", ("", None, None)),
    ],
)
def test_image_references(image: str, parts: tuple[str, str | None, str | None]) -> None:
    assert parse_image(image) == parts


# Names that no list knows, so that each takes the next word.
NAMES = st.from_regex(r"x[a-z0-9]{0,6}(-[a-z0-9]{1,5}){0,2}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_characters="$", exclude_categories=["Cs"]), max_size=12)


def spellable(text: str) -> bool:
    """Whether a value may stand as a word of its own; with `=` every text may."""
    return not text.startswith("-")


@given(st.dictionaries(NAMES, TEXTS, max_size=6), st.data())
def test_flags_come_back_in_every_spelling(flags: dict[str, str], data: Any) -> None:
    words: list[str] = ["m"]
    for name, text in flags.items():
        written = name.replace("-", "_") if data.draw(st.booleans()) else name
        if spellable(text) and data.draw(st.booleans()):
            words += [f"--{written}", text]
        else:
            words.append(f"--{written}={text}")
    assert values(vllm(*words)) == {"model": "m"} | flags


SCALARS = st.one_of(st.booleans(), st.integers(), TEXTS.filter(lambda text: not text.endswith("\\")))
KEYS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
OBJECTS = st.dictionaries(KEYS, SCALARS, min_size=1, max_size=4)


@given(st.dictionaries(KEYS, st.one_of(SCALARS, OBJECTS), min_size=1, max_size=5), st.booleans())
def test_objects_come_back_as_json_and_in_parts(config: dict[str, Any], attached: bool) -> None:
    text = json.dumps(config)
    whole = ["--kv-transfer-config=" + text] if attached else ["--kv-transfer-config", text]
    parts = []
    for key, value in config.items():
        inner = value.items() if isinstance(value, dict) else [(None, value)]
        for below, leaf in inner:
            name = f"--kv-transfer-config.{key}" + (f".{below}" if below is not None else "")
            parts.append(f"{name}={json.dumps(leaf)}")
    assert vllm("m", *whole).value("kv-transfer-config") == config
    assert vllm("m", *parts).value("kv-transfer-config") == config


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
TOKENS = st.one_of(
    st.sampled_from(
        [
            "vllm",
            "serve",
            "-m",
            "sglang.launch_server",
            "--",
            "-",
            "--=",
            "--no-",
            "-tp",
            "--kv-transfer-config",
            "{",
        ]
    ),
    st.from_regex(r"--[a-z_.+=-]{0,20}", fullmatch=True),
    st.just("--kv-transfer-config." + ".".join("a" * 60)),
    st.just("[" * 5000),
    ANYTHING,
)


@given(
    st.one_of(st.none(), st.lists(TOKENS, max_size=6)),
    st.one_of(st.none(), ANYTHING, st.lists(TOKENS, max_size=8)),
    st.one_of(st.none(), st.lists(ANYTHING, max_size=4)),
    st.text(max_size=30),
)
def test_nothing_raises(command: Any, args: Any, env: Any, image: str) -> None:
    read = read_engine(command=command, args=args, env=env, image=image)
    read_connectors(read)
    assert read.kind in ("vllm", "sglang", "trtllm", "unknown")
    for opaque in read.opaque:
        assert opaque.reason and opaque.source
