"""Attention geometry of a model: what one token leaves in the KV cache.

Two sources: the models of research/telemetry.md 4.2 as data, and a Hugging Face `config.json` as a dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from policy.transfer.values import JsonValue, whole


@dataclass(frozen=True, slots=True)
class HeadLayers:
    """Layers with keys and values per head (MHA, GQA, MQA). `window` in tokens, None for full attention."""

    count: int
    kv_heads: int
    head_dim: int
    window: int | None = None


@dataclass(frozen=True, slots=True)
class LatentLayers:
    """MLA layers: one latent vector and one rotary part per token, the same for every head.

    `indexer_dim` is the key of a sparse-attention indexer (DeepSeek V3.2), kept beside the latent.
    """

    count: int
    latent: int
    rope_dim: int
    indexer_dim: int = 0


@dataclass(frozen=True, slots=True)
class StateLayers:
    """Mamba or linear-attention layers: a state of fixed size for each sequence and layer.

    Its bytes depend on the engine's own dtype and padding, so config.json does not tell them.
    """

    count: int
    state_bytes: int | None = None


Layers: TypeAlias = "HeadLayers | LatentLayers | StateLayers"


@dataclass(frozen=True, slots=True)
class ModelGeometry:
    """Layers of one model, with those of its draft. `dtype` is what its config.json names."""

    name: str
    layers: tuple[Layers, ...]
    drafts: tuple[Layers, ...] = ()
    dtype: str | None = None
    quantization: str | None = None

    @property
    def is_mla(self) -> bool:
        """Whether attention keeps latents instead of heads."""
        return any(isinstance(each, LatentLayers) for each in self.layers)

    @property
    def has_state(self) -> bool:
        """Whether some layers keep a state for each sequence (Mamba hybrids)."""
        return any(isinstance(each, StateLayers) for each in self.layers)

    @property
    def is_hybrid(self) -> bool:
        """Whether the layers differ in kind, so that the hybrid KV cache manager has something to do."""
        windows = {each.window for each in self.layers if isinstance(each, HeadLayers)}
        return self.has_state or len(windows) > 1 or windows not in (set(), {None})

    @property
    def kv_heads(self) -> int | None:
        """Heads that tensor parallelism divides; None without such layers."""
        heads = [each.kv_heads for each in self.layers if isinstance(each, HeadLayers)]
        return max(heads) if heads else None

    @property
    def layer_count(self) -> int:
        """Layers without those of the draft."""
        return sum(each.count for each in self.layers)

    def summary(self) -> list[JsonValue]:
        """KV heads, head size and layers, as the engines compare them."""
        for each in self.layers:
            if isinstance(each, LatentLayers):
                return [1, each.latent + each.rope_dim, self.layer_count]
            if isinstance(each, HeadLayers):
                return [self.kv_heads, each.head_dim, self.layer_count]
        return [None, None, self.layer_count]


def _heads(name: str, count: int, kv_heads: int, head_dim: int) -> ModelGeometry:
    return ModelGeometry(name, (HeadLayers(count, kv_heads, head_dim),), dtype="bfloat16")


# research/telemetry.md 4.2. gpt-oss alternates full layers with layers of window 128.
MODELS: Mapping[str, ModelGeometry] = {
    "llama-3-8b": _heads("Llama-3(.1)-8B", 32, 8, 128),
    "llama-3-70b": _heads("Llama-3(.1)-70B", 80, 8, 128),
    "qwen3-32b": _heads("Qwen3-32B", 64, 8, 128),
    "llama-3.1-405b": _heads("Llama-3.1-405B", 126, 8, 128),
    "deepseek-v3": ModelGeometry("DeepSeek-V3/R1", (LatentLayers(61, 512, 64),), dtype="bfloat16"),
    "gpt-oss-120b": ModelGeometry(
        "gpt-oss-120b", (HeadLayers(18, 8, 64), HeadLayers(18, 8, 64, window=128)), dtype="bfloat16"
    ),
}


@dataclass(frozen=True, slots=True)
class ConfigReading:
    """What a config.json says; `geometry` is None where a number that matters is missing."""

    geometry: ModelGeometry | None
    warnings: tuple[str, ...] = field(default=())


def read_config(config: Mapping[str, object], *, name: str = "") -> ConfigReading:
    """The geometry in a Hugging Face config.json; of a multimodal model, that of its text part."""
    inner = config.get("text_config")
    text = inner if isinstance(inner, Mapping) else config
    warnings: list[str] = []
    count = _number(text, "num_hidden_layers", "n_layer", "num_layers")
    if not count:
        return ConfigReading(None, ("config.json does not say how many layers the model has.",))
    layers = _latent_layers(text, count) or _head_layers(text, count, warnings)
    if layers is None:
        return ConfigReading(None, tuple(warnings))
    quantized = text.get("quantization_config") or config.get("quantization_config")
    method = quantized.get("quant_method") if isinstance(quantized, Mapping) else None
    dtype = text.get("dtype") or text.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype")
    geometry = ModelGeometry(
        name or str(config.get("_name_or_path") or ""),
        layers,
        drafts=_draft_layers(text, layers),
        dtype=dtype if isinstance(dtype, str) else None,
        quantization=str(method) if method else None,
    )
    return ConfigReading(geometry, tuple(warnings))


def _number(config: Mapping[str, object], *names: str) -> int | None:
    for name in names:
        value = config.get(name)
        found = whole(value) if isinstance(value, int | str) else None
        if found is not None:
            return found
    return None


def _latent_layers(config: Mapping[str, object], count: int) -> tuple[Layers, ...] | None:
    latent, rope = _number(config, "kv_lora_rank"), _number(config, "qk_rope_head_dim")
    if not latent or rope is None:
        return None
    return (LatentLayers(count, latent, rope, _number(config, "index_head_dim") or 0),)


def _head_layers(config: Mapping[str, object], count: int, warnings: list[str]) -> tuple[Layers, ...] | None:
    heads = _number(config, "num_attention_heads", "n_head")
    hidden = _number(config, "hidden_size", "n_embd")
    kv_heads = _number(config, "num_key_value_heads", "num_kv_heads")
    if kv_heads is None:
        kv_heads = 1 if config.get("multi_query") is True else heads
    head_dim = _number(config, "head_dim")
    if head_dim is None and heads and hidden:
        head_dim = hidden // heads
    if not kv_heads or not head_dim:
        warnings.append("config.json does not say how many KV heads there are or how large a head is.")
        return None
    kinds = _kinds(config, count, warnings)
    window = _number(config, "sliding_window")
    groups: list[Layers] = []
    full, windowed, state = (kinds.count(kind) for kind in ("full", "window", "state"))
    if full:
        groups.append(HeadLayers(full, kv_heads, head_dim))
    if windowed and window:
        groups.append(HeadLayers(windowed, kv_heads, head_dim, window))
    elif windowed:
        warnings.append("config.json names layers with a window and no window; they count as full.")
        groups.append(HeadLayers(windowed, kv_heads, head_dim))
    if state:
        groups.append(StateLayers(state))
    return tuple(groups)


def _kinds(config: Mapping[str, object], count: int, warnings: list[str]) -> list[str]:
    """Full, window or state for each layer."""
    listed = config.get("layer_types")
    if isinstance(listed, list) and listed:
        if len(listed) != count:
            warnings.append(f"config.json lists {len(listed)} kinds of layers for {count} layers.")
        return [_kind(str(each)) for each in listed]
    every = _number(config, "full_attention_interval")
    if every:
        return ["full" if (index + 1) % every == 0 else "state" for index in range(count)]
    window = _number(config, "sliding_window")
    if not window or config.get("use_sliding_window") is False:
        return ["full"] * count
    pattern = _number(config, "sliding_window_pattern")
    if pattern:
        return ["full" if (index + 1) % pattern == 0 else "window" for index in range(count)]
    return ["window"] * count


def _kind(text: str) -> str:
    if "sliding" in text or "chunked" in text:
        return "window"
    return "state" if text in ("linear_attention", "mamba", "mamba2", "recurrent", "conv") else "full"


def _draft_layers(config: Mapping[str, object], layers: tuple[Layers, ...]) -> tuple[Layers, ...]:
    """Layers of a multi-token-prediction draft that comes with the model; each has the model's own shape."""
    count = _number(config, "num_nextn_predict_layers", "mtp_num_hidden_layers")
    if not count:
        return ()
    for each in layers:
        if isinstance(each, LatentLayers):
            return (LatentLayers(count, each.latent, each.rope_dim, each.indexer_dim),)
        if isinstance(each, HeadLayers) and each.window is None:
            return (HeadLayers(count, each.kv_heads, each.head_dim),)
    return ()
