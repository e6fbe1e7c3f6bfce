"""What kind of engine a pod's spec asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.demo.engines import arguments
from deploy.demo.engines.geometry import LINKS, Geometry, element_bytes, geometry_of, gpu_blocks
from deploy.demo.engines.pods import EnginePod

DEFAULT_VERSION = "0.30.0"
# First release with a number of the NIXL connector's protocol; releases between two keep the older number.
_PROTOCOLS = (((0, 33), 15), ((0, 30), 11), ((0, 29), 9), ((0, 26), 5), ((0, 23), 4), ((0, 0), 2))
_TAG_VERSION = re.compile(r"(?:^|[-_])v?(0\.(?:1[1-9]|[2-9]\d)(?:\.\d+)?[^-_]*)(?:[-_].*)?$")
_GEOMETRY_FIELDS = {"num_hidden_layers": "layers", "num_key_value_heads": "kv_heads", "head_dim": "head_size"}
_DRAFT_FIELDS = ("method", "model", "revision", "dtype", "eagle_aux_hidden_state_layer_ids")
_OLD_LEASE_S = 480.0  # before 0.22: a fixed time, no heartbeats


@dataclass(frozen=True)
class EngineSpec:
    """One engine's configuration, resolved. Times are seconds, sizes tokens unless said otherwise."""

    version: str
    model: str
    served_name: str
    revision: str
    quantization: str
    dtype: str
    kv_cache_dtype: str
    block_size: int
    tp: int
    backend: str
    layout: str
    overrides: str
    speculative: str
    hybrid: bool
    cross_layers: bool
    connector: str
    kv_role: str
    recompute: bool
    enforce: bool
    permute: bool
    host_buffer: bool
    lease_s: float
    heartbeats: bool
    engine_ttl_s: float
    handshake_s: float
    link: str
    max_length: int
    max_seqs: int
    blocks: int
    utilisation: float
    prefix_caching: bool
    weights: str
    shape: Geometry

    @property
    def release(self) -> tuple[int, int]:
        """(0, 30) of 0.30.0."""
        major, minor, *_ = (int(part) for part in re.findall(r"\d+", self.version + ".0"))
        return major, minor

    @property
    def protocol(self) -> int:
        """The number of the connector's wire protocol in this release."""
        return next(number for first, number in _PROTOCOLS if self.release >= first)

    @property
    def push(self) -> bool:
        """Whether prefill writes instead of decode reading."""
        return "Push" in self.connector

    @property
    def element(self) -> float:
        """Bytes of one element of KV cache."""
        return element_bytes(self.kv_cache_dtype, self.dtype)


def engine_spec(pod: EnginePod) -> EngineSpec:
    """The engine of a pod; what the spec leaves out is as in a usual deployment of that release."""
    model, flags = arguments.parse(pod.args)
    model = model or pod.env.get("MODEL") or "lockstep-demo/tiny"
    shape = _overridden(geometry_of(model), flags)
    version = pod.env.get("ENGINE_VERSION") or _tag_version(pod.image) or DEFAULT_VERSION
    transfer = _connector(arguments.mapping(flags, "kv-transfer-config"))
    release = tuple(int(part) for part in re.findall(r"\d+", version + ".0")[:2])
    dtype = _dtype(flags.get("dtype", "auto"))
    kv_dtype = flags.get("kv-cache-dtype", "auto")
    block = int(arguments.number(flags, "block-size", 64 if shape.mla else 16))
    tp = int(arguments.number(flags, "tensor-parallel-size", arguments.number(flags, "tp", 1)))
    utilisation = arguments.number(flags, "gpu-memory-utilization", 0.9)
    room = gpu_blocks(shape, element_bytes(kv_dtype, dtype), block=block, ranks=tp, utilisation=utilisation)
    return EngineSpec(
        version=version,
        model=model,
        served_name=flags.get("served-model-name") or model,
        dtype=dtype,
        kv_cache_dtype=kv_dtype,
        block_size=block,
        tp=tp,
        backend=_backend(flags, pod.env, shape),
        layout=_layout(pod.env.get("VLLM_KV_CACHE_LAYOUT", ""), shape, bool(transfer["kv_connector"])),
        speculative=_draft(arguments.mapping(flags, "speculative-config")),
        hybrid="disable-hybrid-kv-cache-manager" not in flags,
        shape=shape,
        max_length=int(arguments.number(flags, "max-model-len", shape.max_length)),
        max_seqs=int(arguments.number(flags, "max-num-seqs", 256)),
        blocks=int(arguments.number(flags, "num-gpu-blocks-override", room)),
        utilisation=utilisation,
        prefix_caching="no-enable-prefix-caching" not in flags,
        link=_link(pod.env.get("ENGINE_LINK", "ndr")),
        handshake_s=float(pod.env.get("ENGINE_HANDSHAKE_SECONDS") or 0.5),
        **_weight_fields(model, flags, pod.env),
        **_transfer_fields(transfer, release, flags, pod.env),
    )


def _weight_fields(model: str, flags: Mapping[str, str], env: Mapping[str, str]) -> dict[str, Any]:
    """What decides the answers: model, revision, quantisation, and overrides other than of geometry."""
    changes = arguments.mapping(flags, "hf-overrides")
    parts = {
        "revision": flags.get("revision") or "main",
        "quantization": flags.get("quantization", ""),
        "overrides": _canonical({k: v for k, v in changes.items() if k not in _GEOMETRY_FIELDS}),
    }
    return {**parts, "weights": env.get("ENGINE_WEIGHTS") or "\0".join((model, *parts.values()))}


def _transfer_fields(
    transfer: dict[str, Any], release: tuple[int, ...], flags: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, Any]:
    extra = transfer.get("kv_connector_extra_config") or {}
    leased = release >= (0, 22)
    usual = "fail" if release >= (0, 17) else "recompute"
    fixed = float(env.get("VLLM_NIXL_ABORT_REQUEST_TIMEOUT") or _OLD_LEASE_S)
    return {
        "connector": str(transfer["kv_connector"]),
        "kv_role": str(transfer.get("kv_role", "kv_both")),
        "recompute": transfer.get("kv_load_failure_policy", usual) == "recompute",
        "enforce": _truth(extra.get("enforce_handshake_compat", True)),
        "cross_layers": _truth(extra.get("enable_cross_layers_blocks", False)),
        "permute": _truth(transfer.get("enable_permute_local_kv", False)),
        "host_buffer": transfer.get("kv_buffer_device", "cuda") == "cpu",
        "lease_s": float(extra.get("kv_lease_duration", 30.0)) if leased else fixed,
        "heartbeats": leased,
        "engine_ttl_s": float(extra.get("engine_ttl", 3600.0)),
    }


def _connector(config: dict[str, Any]) -> dict[str, Any]:
    """The NIXL part of a --kv-transfer-config: the config itself, or one below MultiConnector."""
    if config.get("kv_connector") == "MultiConnector":
        inner = (config.get("kv_connector_extra_config") or {}).get("connectors") or []
        found = [each for each in inner if "Nixl" in str(each.get("kv_connector", ""))]
        config = found[0] if found else {}
    name = str(config.get("kv_connector", ""))
    return {**config, "kv_connector": name if "Nixl" in name else ""}


def _tag_version(image: str) -> str:
    name, _, tag = image.partition("@")[0].rpartition(":")
    found = _TAG_VERSION.search(tag) if name and "/" not in tag else None
    if not found:
        return ""
    version = found.group(1)
    return version if version.count(".") >= 2 else f"{version}.0"


def _dtype(name: str) -> str:
    return {"auto": "bfloat16", "half": "float16", "float": "float32"}.get(name, name)


def _backend(flags: Mapping[str, str], env: Mapping[str, str], shape: Geometry) -> str:
    """The attention backend: named, or what the GPU (``ENGINE_GPU``) makes of "auto"."""
    named = flags.get("attention-backend") or env.get("VLLM_ATTENTION_BACKEND", "")
    if named and named != "auto":
        return named.upper()
    blackwell = env.get("ENGINE_GPU", "H200").upper().removeprefix("G").startswith("B")
    if shape.mla:
        return "FLASHINFER_MLA" if blackwell else "FLASHMLA"
    return "FLASHINFER" if blackwell else "FLASH_ATTN"


def _layout(named: str, shape: Geometry, connected: bool) -> str:
    """HND or NHD; the names changed between 0.26 and 0.29, and NIXL forces HND where heads are not latent."""
    known = {"LBHNC": "HND", "LBNHC": "NHD"}.get(named.upper(), named.upper())
    return known or ("HND" if connected and not shape.mla else "NHD")


def _link(name: str) -> str:
    return name.lower() if name.lower() in LINKS else "ndr"


def _overridden(shape: Geometry, flags: Mapping[str, str]) -> Geometry:
    """--hf-overrides may change the geometry itself."""
    changes = arguments.mapping(flags, "hf-overrides")
    known = {field: int(changes[name]) for name, field in _GEOMETRY_FIELDS.items() if name in changes}
    return Geometry(**{**shape.__dict__, **known})


def _draft(config: dict[str, Any]) -> str:
    """The part of --speculative-config that is hashed: drafts with KV of their own, not how many tokens they guess."""
    method = str(config.get("method", ""))
    if "eagle" not in method and "mtp" not in method:
        return ""
    return _canonical({name: config[name] for name in _DRAFT_FIELDS if name in config})


def _canonical(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True) if value else ""


def _truth(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).lower() in ("1", "true", "yes")
