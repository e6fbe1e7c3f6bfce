"""When a decode engine (local) may read a prefill engine's (remote) KV cache, and what goes wrong unseen.

The rules are those of vLLM's NIXL connector: a hash whose factors depend on the release, then checks of geometry.
"""

from __future__ import annotations

from hashlib import sha256

from deploy.demo.engines.spec import EngineSpec

# Up to this release decode ranks could not hold copies of heads that prefill ranks divide (vllm#45330).
_NO_COPIES = (0, 21)


def hash_factors(spec: EngineSpec) -> dict[str, str]:
    """Everything that goes into the compatibility hash of this engine's release."""
    shape = spec.shape
    factors = {
        "vllm_version": spec.version,
        "nixl_connector_version": str(spec.protocol),
        "model": spec.model,
        "dtype": spec.dtype,
        "total_num_kv_heads": str(shape.kv_heads),
        "head_size": str(shape.head_size),
        "num_hidden_layers": str(shape.layers),
        "attn_backend_name": spec.backend,
        "cache_dtype": spec.kv_cache_dtype,
    }
    if (0, 17) <= spec.release < (0, 29):
        factors["cross_layers_blocks"] = str(spec.cross_layers)
    if spec.release >= (0, 20):
        factors["is_hma_enabled"] = str(spec.hybrid)
    if spec.release >= (0, 29):
        factors["speculative"] = spec.speculative
        factors["transfer_mode"] = "push" if spec.push else "pull"
    return factors


def compatibility_hash(spec: EngineSpec) -> str:
    """The hash that the handshake compares."""
    return sha256(repr(sorted(hash_factors(spec).items())).encode()).hexdigest()


def differing(local: EngineSpec, remote: EngineSpec) -> list[str]:
    """Names of hash factors that differ; a factor that only one release knows differs too."""
    mine, theirs = hash_factors(local), hash_factors(remote)
    return sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))


def refusal(local: EngineSpec, remote: EngineSpec) -> str:
    """Why the handshake fails, as the engine's log says it; "" when it succeeds."""
    if local.enforce and compatibility_hash(local) != compatibility_hash(remote):
        return f"NIXL compatibility hash mismatch (factors: {', '.join(differing(local, remote))})"
    return _geometry_refusal(local, remote)


def _geometry_refusal(local: EngineSpec, remote: EngineSpec) -> str:
    big, small = max(local.tp, remote.tp), min(local.tp, remote.tp)
    if big % small:
        return f"Remote tensor parallel size {remote.tp} is not divisible by local tensor parallel size {local.tp}"
    shape = local.shape
    if remote.tp > local.tp and not shape.mla and remote.tp > shape.kv_heads:
        return f"AssertionError: remote tensor parallel size {remote.tp} exceeds {shape.kv_heads} KV heads"
    if remote.tp <= shape.kv_heads < local.tp and not shape.mla and local.release <= _NO_COPIES:
        return f"AssertionError: local tensor parallel size {local.tp} exceeds {shape.kv_heads} KV heads"
    return _block_refusal(local, remote) or _layout_refusal(local, remote)


def _block_refusal(local: EngineSpec, remote: EngineSpec) -> str:
    mine, theirs = local.block_size, remote.block_size
    if mine == theirs:
        return ""
    if local.host_buffer or remote.host_buffer:
        return f"Block sizes {mine} and {theirs} differ, which a host buffer does not allow"
    if mine % theirs or remote.tp > local.tp:
        return f"Local block size {mine} is not divisible by remote block size {theirs}"
    return ""


def _layout_refusal(local: EngineSpec, remote: EngineSpec) -> str:
    shape = local.shape
    if shape.mla:
        return ""
    if local.layout != remote.layout:
        permuted = local.permute and local.layout == "NHD" and remote.layout == "HND" and not _hybrid(local)
        if not permuted:
            return "Heterogeneous TP expects same kv_cache_layout"
    if local.tp != remote.tp:
        # Prefill ranks that hold copies of heads are not split by heads.
        if local.layout != "HND" and remote.tp <= shape.kv_heads:
            return "head-dimension splitting requires contiguous heads"
        if "nvfp4" in (local.kv_cache_dtype, remote.kv_cache_dtype):
            return "KV-head re-sharding is not supported for NVFP4"
    if local.element != remote.element or shape.layers != remote.shape.layers:
        return "KV cache sizes must match after head and block ratios"
    return ""


def _hybrid(spec: EngineSpec) -> bool:
    """Whether the hybrid manager has anything to manage."""
    return spec.hybrid and spec.shape.window_layers > 0


def spoiled_share(local: EngineSpec, remote: EngineSpec) -> float:
    """Share of wrong tokens when this pair's handshake succeeds although its KV does not belong together.

    The hash knows neither the weights' revision nor their quantisation nor overrides that keep the geometry, and with
    enforcement off it knows nothing. The shares are the simulation's own.
    """
    if differing(local, remote):
        return 0.9
    if local.weights == remote.weights:
        return 0.0
    same_but_quantised = (local.model, local.revision, local.overrides) == (
        remote.model,
        remote.revision,
        remote.overrides,
    )
    return 0.15 if same_but_quantised and local.quantization != remote.quantization else 0.5
