"""What an engine is, read from its pod; and the arithmetic of KV."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.demo.engines import geometry
from deploy.demo.engines.arguments import parse
from deploy.demo.engines.pods import read_pod
from deploy.demo.engines.spec import EngineSpec, engine_spec
from tests.demo.engines.cluster import pod

MODEL = "meta-llama/Llama-3.1-70B-Instruct"


def spec(container: dict[str, Any] | None = None, env: dict[str, str] | None = None) -> EngineSpec:
    document = pod("d", "decode", 1)
    target = document["spec"]["containers"][0]
    target["args"] = []
    target.update(container or {})
    target["env"] = [{"name": key, "value": value} for key, value in (env or {}).items()]
    found = read_pod(document)
    assert found is not None
    return engine_spec(found)


@pytest.mark.parametrize(
    "container",
    [
        {"args": ["--model", MODEL, "--tensor-parallel-size", "8"]},
        {"args": [f"--model={MODEL}", "--tensor-parallel-size=8"]},
        {"args": ["serve", MODEL, "--tensor_parallel_size", "8"]},
        {"args": [MODEL, "--trust-remote-code", "--tensor-parallel-size=8"]},
        {
            "command": ["vllm", "serve"],
            "args": [MODEL, "--enable-chunked-prefill", "--tensor-parallel-size", "8"],
        },
        {
            "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
            "args": ["--tensor-parallel-size", "8", "--model", MODEL],
        },
        {"command": ["/bin/sh", "-c"], "args": [f"exec vllm serve {MODEL} \\\n --tensor-parallel-size 8"]},
    ],
)
def test_every_spelling_of_a_command_line(container: dict[str, Any]) -> None:
    found = spec(container)
    assert (found.model, found.tp, found.shape.layers) == (MODEL, 8, 80)


def test_the_connector_in_all_its_forms() -> None:
    json_form = (
        '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer", "kv_load_failure_policy": "recompute", '
    )
    json_form += '"kv_connector_extra_config": {"kv_lease_duration": 60, "enforce_handshake_compat": false}}'
    multi = (
        '{"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": [{"kv_connector": '
    )
    multi += '"OffloadingConnector"}, ' + json_form + "]}}"
    dotted = [
        "--kv-transfer-config.kv_connector",
        "NixlConnector",
        "--kv-transfer-config.kv_role=kv_consumer",
    ]
    dotted += ["--kv-transfer-config.kv_load_failure_policy", "recompute"]
    dotted += ["--kv-transfer-config.kv_connector_extra_config.kv_lease_duration", "60"]
    dotted += ["--kv-transfer-config.kv_connector_extra_config.enforce_handshake_compat=false"]
    for args in (["--kv-transfer-config", json_form], [f"--kv-transfer-config={multi}"], dotted):
        found = spec({"args": args})
        assert (found.connector, found.kv_role, found.recompute) == ("NixlConnector", "kv_consumer", True)
        assert (found.lease_s, found.enforce) == (60, False)
    assert spec().connector == "" and spec({"args": ["--kv-transfer-config", "{"]}).connector == ""


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.33.0", "0.33.0"),
        ("registry:5000/llm-d-cuda:0.29.1@sha256:" + "0" * 64, "0.29.1"),
        ("engine:cuda-v0.31.0rc1.dev5", "0.31.0rc1.dev5"),
        ("engine:v0.33", "0.33.0"),
        ("engine:v0.33.0-late5s", "0.33.0"),
        ("ghcr.io/llm-d/llm-d-cuda:v0.4.0", "0.30.0"),  # a version of something else
        ("engine:v2-never-ready", "0.30.0"),
        ("registry:5000/engine", "0.30.0"),
    ],
)
def test_the_release_is_that_of_the_tag_where_it_is_one(image: str, version: str) -> None:
    assert spec({"image": image}).version == version
    assert spec({"image": image}, {"ENGINE_VERSION": "0.26.0"}).version == "0.26.0"


def test_what_is_left_out_is_as_the_release_has_it() -> None:
    for version, lease, beats, recompute in (
        ("0.14.0", 480, False, True),
        ("0.20.0", 480, False, False),
        ("0.30.0", 30, True, False),
    ):
        found = spec(env={"ENGINE_VERSION": version})
        assert (found.lease_s, found.heartbeats, found.recompute) == (lease, beats, recompute)
    protocols = {"0.17.0": 2, "0.23.0": 4, "0.26.0": 5, "0.29.0": 9, "0.30.0": 11, "0.31.0": 11, "0.33.0": 15}
    assert {v: spec(env={"ENGINE_VERSION": v}).protocol for v in protocols} == protocols


def test_layout_names_of_both_generations_are_one_layout() -> None:
    for name in ("HND", "LBHNC"):
        assert spec(env={"VLLM_KV_CACHE_LAYOUT": name}).layout == "HND"
    assert (
        spec(env={"VLLM_KV_CACHE_LAYOUT": "NHD"}).layout == spec(env={"VLLM_KV_CACHE_LAYOUT": "LBNHC"}).layout
    )


@pytest.mark.parametrize(
    ("model", "tokens", "size", "hybrid"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 4096, 0.537e9, True),
        ("meta-llama/Meta-Llama-3-70B", 4096, 1.342e9, True),
        ("/models/Llama-3.3-70B", 32768, 10.7e9, True),
        ("Qwen/Qwen3-32B", 4096, 1.074e9, True),
        ("meta-llama/Llama-3.1-405B", 4096, 2.11e9, True),
        ("deepseek-ai/DeepSeek-R1", 4096, 0.288e9, True),
        ("openai/gpt-oss-120b", 4096, 0.156e9, True),
        ("openai/gpt-oss-120b", 4096, 0.302e9, False),
    ],
)
def test_bytes_of_kv_are_those_of_the_formula(model: str, tokens: int, size: float, hybrid: bool) -> None:
    shape = geometry.geometry_of(model)
    assert geometry.kv_bytes(shape, tokens, 2, block=16, hybrid=hybrid) == pytest.approx(size, rel=0.01)


def test_eight_bit_halves_and_ranks_share_up_to_the_heads() -> None:
    shape = geometry.geometry_of(MODEL)
    whole = geometry.kv_bytes(shape, 4096, 2, block=16)
    assert geometry.kv_bytes(shape, 4096, geometry.element_bytes("fp8", "bfloat16"), block=16) == whole / 2
    assert geometry.rank_bytes(shape, whole, 8) == whole / 8 == geometry.rank_bytes(shape, whole, 16)
    assert geometry.descriptors(shape, 4096, 16) == 40960
    post, transfer = geometry.transfer_times(whole, 0, "ndr")
    assert transfer == pytest.approx(0.0298, abs=0.0015) and post < transfer


def test_a_flag_without_a_value_does_not_take_the_model() -> None:
    assert parse(["--no-enable-prefix-caching", "m", "--tp=2"]) == (
        "m",
        {"no-enable-prefix-caching": "", "tp": "2"},
    )
