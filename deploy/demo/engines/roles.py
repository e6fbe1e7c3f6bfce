"""Arguments, environment and labels that make a role of a DisaggregatedSet an engine of a certain kind.

For tests and seeds: :func:`engine_options` gives what ``deploy.rig.workloads.role`` takes, :func:`engine_role` the role
itself. The same words are what a person would write for a real vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.demo.engines.pods import ROUTER_ROLE_LABEL
from deploy.rig import workloads

Doc = dict[str, Any]
SIDE_CHANNEL = "VLLM_NIXL_SIDE_CHANNEL_HOST"  # its default is localhost, which no other pod can reach
POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}
KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
# As the image of the vLLM project: its own entry point is `vllm serve`, the arguments are what follows.
IMAGE = "registry.example/vllm-openai"


def engine_args(
    role: str,
    model: str = "lockstep-demo/tiny",
    *,
    model_revision: str = "",
    tp: int = 1,
    quantization: str = "",
    dtype: str = "",
    kv_cache_dtype: str = "",
    block_size: int = 0,
    attention_backend: str = "",
    max_model_len: int = 8192,
    connector: str = "NixlConnector",
    failure_policy: str = "",
    transfer: Mapping[str, Any] | None = None,
    transfer_extra: Mapping[str, Any] | None = None,
    speculative: Mapping[str, Any] | None = None,
    extra: Sequence[str] = (),
) -> list[str]:
    """What follows ``vllm serve``; empty values are left out, so that the engine's own default holds.

    ``transfer`` goes into --kv-transfer-config, ``transfer_extra`` into its kv_connector_extra_config.
    """
    words = {
        "--revision": model_revision,
        "--quantization": quantization,
        "--dtype": dtype,
        "--kv-cache-dtype": kv_cache_dtype,
        "--block-size": str(block_size or ""),
        "--attention-backend": attention_backend,
        "--max-model-len": str(max_model_len or ""),
        "--tensor-parallel-size": str(tp),
    }
    args = [model, *(word for pair in words.items() if pair[1] for word in pair)]
    if speculative:
        args += ["--speculative-config", json.dumps(dict(speculative))]
    if connector:
        config = _transfer_config(role, connector, failure_policy, transfer, transfer_extra)
        args += ["--kv-transfer-config", json.dumps(config)]
    return [*args, *extra]


def _transfer_config(
    role: str,
    connector: str,
    failure_policy: str,
    transfer: Mapping[str, Any] | None,
    extra: Mapping[str, Any] | None,
) -> Doc:
    config: Doc = {"kv_connector": connector, "kv_role": KV_ROLES.get(role, "kv_both"), **(transfer or {})}
    if failure_policy:
        config["kv_load_failure_policy"] = failure_policy
    if extra:
        config["kv_connector_extra_config"] = dict(extra)
    return config


def engine_env(
    *,
    version: str = "",
    link: str = "",
    gpu: str = "",
    weights: str = "",
    handshake_s: float | None = None,
    faults: Mapping[str, Mapping[str, Any]] | None = None,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Environment that the simulated engine reads; a real one ignores it. ``faults``: see faults.py."""
    named = {
        "ENGINE_VERSION": version,
        "ENGINE_LINK": link,
        "ENGINE_GPU": gpu,
        "ENGINE_WEIGHTS": weights,
        "ENGINE_HANDSHAKE_SECONDS": "" if handshake_s is None else str(handshake_s),
        "ENGINE_FAULTS": json.dumps(faults) if faults else "",
    }
    return {**{name: value for name, value in named.items() if value}, **(extra or {})}


def engine_options(
    role: str,
    model: str = "lockstep-demo/tiny",
    version: str = "0.30.0",
    *,
    tp: int = 1,
    env: Mapping[str, str | Mapping[str, Any]] | None = None,
    labels: Mapping[str, str] | None = None,
    **args: Any,
) -> Doc:
    """image, args, env, labels and gpus for one role; the image's tag is the version. ``args``: :func:`engine_args`."""
    return {
        "image": f"{IMAGE}:v{version}",
        "args": engine_args(role, model, tp=tp, **args),
        "env": {SIDE_CHANNEL: POD_IP, **(env or {})},
        "labels": {ROUTER_ROLE_LABEL: role, **(labels or {})},
        "gpus": tp,
    }


def engine_role(
    role: str,
    replicas: int,
    model: str = "lockstep-demo/tiny",
    version: str = "0.30.0",
    *,
    group: Mapping[str, Any] | None = None,
    **options: Any,
) -> Doc:
    """One entry of ``spec.roles``: ``group`` goes to ``workloads.role``, ``options`` to :func:`engine_options`."""
    return workloads.role(role, replicas, **engine_options(role, model, version, **options), **(group or {}))


def engine_pair(
    prefill: int = 4,
    decode: int = 2,
    model: str = "lockstep-demo/tiny",
    version: str = "0.30.0",
    **options: Any,
) -> list[Doc]:
    """The usual two roles with equal options."""
    return [
        engine_role("prefill", prefill, model, version, **options),
        engine_role("decode", decode, model, version, **options),
    ]
