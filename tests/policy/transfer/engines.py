"""Engines for tests: containers as a pod spec has them, and facts about a pair that fits in every respect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from policy.transfer.arguments import EngineArguments, read_engine
from policy.transfer.facts import EngineFacts, LinkFacts, LiveFacts
from policy.transfer.findings import Finding, Verdict
from policy.transfer.models import MODELS
from policy.transfer.verdict import judge_pair

DIGEST = "docker.io/vllm/vllm-openai@sha256:" + "a" * 64
OTHER_DIGEST = "docker.io/vllm/vllm-openai@sha256:" + "b" * 64
COMMIT = "c" * 40
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
HOST = {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "value": "$(POD_IP)"}
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
SGLANG_IMAGE = "lmsysorg/sglang:v0.5.23"


def connector(role: str, name: str = "NixlConnector", **settings: Any) -> str:
    """The value of --kv-transfer-config for a role."""
    return json.dumps({"kv_connector": name, "kv_role": ROLES.get(role, role), **settings})


def arguments(
    role: str = "decode",
    *flags: str,
    model: str = "meta-llama/Llama-3.1-70B-Instruct",
    transfer: str | None = "",
    env: Sequence[dict[str, Any]] = (),
    image: str = "vllm/vllm-openai:v0.30.0",
) -> EngineArguments:
    """A readable vLLM engine of a role; `transfer` replaces its connector, None leaves it away."""
    given = connector(role) if transfer == "" else transfer
    words = [model, *(["--kv-transfer-config", given] if given is not None else []), *flags]
    return read_engine(command=["vllm", "serve"], args=words, env=[POD_IP, HOST, *env], image=image)


# Every factor is written down, so that nothing rests on what an engine chooses.
WRITTEN = (
    "--revision",
    COMMIT,
    "--dtype=bfloat16",
    "--attention-backend=FLASH_ATTN",
    "--kv-cache-dtype=fp8",
    "--no-disable-hybrid-kv-cache-manager",
    "--block-size=16",
    "--quantization=fp8",
)


def facts(role: str = "decode", *flags: str, **fields: Any) -> EngineFacts:
    """Facts of one side in which every factor is known; keyword arguments replace some."""
    given = {name: fields.pop(name) for name in ("model", "transfer", "env", "image") if name in fields}
    known: dict[str, Any] = {
        "arguments": arguments(role, *WRITTEN, *flags, **given),
        "image_digests": (DIGEST,),
        "live": LiveFacts(engine="vllm", version="0.30.0"),
        "gpu_product": "NVIDIA-H100-80GB-HBM3",
        "geometry": MODELS["llama-3-70b"],
        "link": LinkFacts(rdma=True, fabric="zone-a/leaf-1"),
    }
    return EngineFacts(**(known | fields))


def live(engine: EngineFacts, **fields: Any) -> EngineFacts:
    """The same engine with other live facts."""
    return replace(engine, live=replace(engine.live, **fields))


def script(text: str, image: str = "vllm/vllm-openai:v0.30.0") -> EngineArguments:
    """An engine behind a shell."""
    return read_engine(command=["/bin/sh", "-c"], args=[text], env=[], image=image)


def sglang(role: str, *flags: str, **fields: Any) -> EngineFacts:
    """An SGLang engine of a role in which every factor is known."""
    words = ["-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-32B", "--revision", COMMIT]
    words += ["--disaggregation-mode", role, "--page-size", "64", "--kv-cache-dtype", "fp8_e4m3"]
    words += ["--dtype", "bfloat16", "--quantization", "fp8", *flags]
    read = read_engine(command=["python3"], args=words, env=[], image=SGLANG_IMAGE)
    known: dict[str, Any] = {
        "arguments": read,
        "image_digests": (DIGEST,),
        "live": LiveFacts(engine="sglang", version="0.5.23"),
        "gpu_product": "NVIDIA-H100-80GB-HBM3",
        "geometry": MODELS["qwen3-32b"],
        "link": LinkFacts(rdma=True, fabric="zone-a/leaf-1"),
    }
    return EngineFacts(**(known | fields))


def judge(prefill: EngineFacts | None = None, decode: EngineFacts | None = None) -> Verdict:
    """The verdict for two sides; one that is not given fits in every respect."""
    return judge_pair(prefill or facts("prefill"), decode or facts("decode"))


def by_id(verdict: Verdict, id: str) -> Finding:
    """The finding of that id."""
    found = [each for each in verdict.findings if each.id == id]
    assert found, f"{id} is not among {[each.id for each in verdict.findings]}"
    return found[0]
