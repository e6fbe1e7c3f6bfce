"""Shapes of models: bytes of KV cache, and the pace of simulated hardware.

Formulas and figures: KV per token = 2 x layers x heads x head size x bytes (MLA: layers x latent, no factor 2);
links are planning values per GPU in one direction, not headlines.
"""

from __future__ import annotations

from dataclasses import dataclass

# Bytes per second of one rank's link: planning values.
LINKS = {
    "nvlink4": 315e9,
    "nvlink5": 630e9,
    "hdr": 22e9,
    "ndr": 45e9,
    "xdr": 90e9,
    "roce400": 40e9,
    "tcp": 1e9,
    "cuda_ipc": 0.5e9,  # remote reads on the same node without RDMA fall back to TCP
}
_FIXED_S = 0.001  # per transfer
_PER_DESCRIPTOR_S = 2e-7
_FLOPS = 4e14  # one GPU, prefill
_READ = 2.2e12  # bytes per second of GPU memory, decode
_STEP_FLOOR_S = 0.006
_PREFILL_FLOOR_S = 0.004
_GPU_BYTES = 141e9
_ELEMENT = {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1, "int8": 1, "nvfp4": 0.5, "float32": 4}


@dataclass(frozen=True)
class Geometry:
    """One model: ``latent`` > 0 means MLA; of ``layers``, ``window_layers`` see ``window`` tokens only."""

    layers: int
    kv_heads: int
    head_size: int
    parameters: float
    active: float = 0.0
    latent: int = 0
    window: int = 0
    window_layers: int = 0
    max_length: int = 131072

    @property
    def mla(self) -> bool:
        """Whether keys and values are one latent, which every rank holds whole."""
        return self.latent > 0


_DEFAULT = Geometry(16, 8, 64, 1.2e9)
_MODELS = {
    "llama-3.1-8b": Geometry(32, 8, 128, 8.0e9),
    "llama-3-8b": Geometry(32, 8, 128, 8.0e9, max_length=8192),
    "llama-3.1-70b": Geometry(80, 8, 128, 70.6e9),
    "llama-3.3-70b": Geometry(80, 8, 128, 70.6e9),
    "llama-3-70b": Geometry(80, 8, 128, 70.6e9, max_length=8192),
    "llama-3.1-405b": Geometry(126, 8, 128, 405e9),
    "qwen3-32b": Geometry(64, 8, 128, 32.8e9, max_length=40960),
    "deepseek-v3": Geometry(61, 128, 576, 671e9, 37e9, latent=576, max_length=163840),
    "deepseek-r1": Geometry(61, 128, 576, 671e9, 37e9, latent=576, max_length=163840),
    "gpt-oss-120b": Geometry(36, 8, 64, 117e9, 5.1e9, window=128, window_layers=18),
}


def geometry_of(model: str) -> Geometry:
    """The shape of a model by its name or path (longest known part wins); a small one for unknown names."""
    name = model.lower().replace("meta-llama-", "llama-").replace("llama3", "llama-3")
    found = max((known for known in _MODELS if known in name), key=len, default="")
    return _MODELS.get(found, _DEFAULT)


def element_bytes(kv_cache_dtype: str, dtype: str) -> float:
    """Bytes of one KV element; ``auto`` follows the model's dtype."""
    name = dtype if kv_cache_dtype == "auto" else kv_cache_dtype
    return _ELEMENT.get(name, 2)


def kv_bytes(shape: Geometry, tokens: int, element: float, *, block: int, hybrid: bool = True) -> float:
    """Bytes of KV of ``tokens`` tokens in one copy; window layers are clipped while the hybrid manager is on."""
    if shape.mla:
        return shape.layers * shape.latent * element * tokens
    per_layer = 2 * shape.kv_heads * shape.head_size * element
    clipped = tokens
    if shape.window and hybrid:
        clipped = min(tokens, (-(-shape.window // block) + 1) * block)
    full = shape.layers - shape.window_layers
    return per_layer * (full * tokens + shape.window_layers * clipped)


def rank_bytes(shape: Geometry, whole: float, ranks: int) -> float:
    """What one of ``ranks`` decode ranks reads of ``whole``: a share of the heads, or the whole latent."""
    return whole if shape.mla else whole / min(ranks, shape.kv_heads)


def descriptors(shape: Geometry, tokens: int, block: int) -> int:
    """Pieces of one read: regions (keys and values of each layer) x blocks."""
    return shape.layers * (1 if shape.mla else 2) * -(-tokens // block)


def transfer_times(size: float, pieces: int, link: str) -> tuple[float, float]:
    """Seconds to post one rank's read of ``size`` bytes, and until it is complete. KeyError for unknown links."""
    post = _FIXED_S / 4 + pieces * _PER_DESCRIPTOR_S
    return post, _FIXED_S * 3 / 4 + post + size / LINKS[link]


def prefill_time(shape: Geometry, tokens: int, ranks: int) -> float:
    """Seconds to compute a prompt."""
    return _PREFILL_FLOOR_S + 2 * (shape.active or shape.parameters) * tokens / (ranks * _FLOPS)


def step_time(shape: Geometry, ranks: int, running: int) -> float:
    """Seconds between two tokens with ``running`` requests in the batch."""
    read = 2 * (shape.active or shape.parameters) / (ranks * _READ)
    return max(_STEP_FLOOR_S, read) * (1 + running / 128)


def gpu_blocks(shape: Geometry, element: float, *, block: int, ranks: int, utilisation: float) -> int:
    """How many KV blocks fit beside the weights; 4096 where weights leave no room: that is not judged here."""
    room = _GPU_BYTES * ranks * utilisation - 2 * shape.parameters
    return max(4096, int(room / kv_bytes(shape, block, element, block=block)))
