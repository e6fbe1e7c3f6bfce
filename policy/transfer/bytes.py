"""KV bytes: what one token keeps, and what moves for one prompt (research/telemetry.md 4.1).

All numbers are exact bytes. A group of layers whose size is not known is named, never counted as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

from policy.transfer.factors import dtype_name
from policy.transfer.models import HeadLayers, LatentLayers, Layers, ModelGeometry, StateLayers

# Bytes of one element of a KV cache, by the names engines give the dtype.
ELEMENT_BYTES: Mapping[str, int] = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
    "float8_e4m3fn": 1,
}
# DeepSeek V3.2's packed latent: 512 bytes of fp8, four scales, 64 rotary values of 16 bits.
FP8_DS_MLA = "fp8_ds_mla"
FP8_DS_MLA_BYTES = 656
# The indexer keeps an fp8 key and one 32-bit scale for each 128 of its elements.
_INDEXER_GROUP, _SCALE_BYTES = 128, 4


class UnknownSize(ValueError):
    """A cache dtype whose bytes are not known here."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What one prompt moves.

    `one_copy` are the bytes of the cache once. `per_decode_rank` is what each decode rank reads, `total` the
    sum over ranks, `copies` their ratio. `tokens` are whole blocks. `unmeasured` names layers left out.
    """

    tokens: int
    one_copy: int
    per_decode_rank: int
    total: int
    unmeasured: tuple[str, ...] = ()

    @property
    def copies(self) -> float:
        """How often the cache crosses the wire; 1 where every rank reads a part of its own."""
        return self.total / self.one_copy if self.one_copy else 1.0


def element_bytes(cache_dtype: str, model: ModelGeometry) -> int:
    """Bytes of one element; `auto` follows the model's own dtype, 16 bits where that is not known."""
    name = dtype_name(cache_dtype)
    if name == "auto":
        name = dtype_name(model.dtype or "bfloat16")
    if name not in ELEMENT_BYTES:
        raise UnknownSize(f"the bytes of a KV cache of dtype {cache_dtype} are not known here")
    return ELEMENT_BYTES[name]


def layer_bytes(layers: Layers, cache_dtype: str, model: ModelGeometry) -> int:
    """Bytes that one token keeps in all layers of one group; 0 for layers with a state per sequence."""
    if isinstance(layers, StateLayers):
        return 0
    if isinstance(layers, HeadLayers):
        return 2 * layers.count * layers.kv_heads * layers.head_dim * element_bytes(cache_dtype, model)
    indexer = 0
    if layers.indexer_dim:
        indexer = layers.indexer_dim + ceil(layers.indexer_dim / _INDEXER_GROUP) * _SCALE_BYTES
    if dtype_name(cache_dtype) == FP8_DS_MLA:
        return layers.count * (FP8_DS_MLA_BYTES + indexer)
    return layers.count * ((layers.latent + layers.rope_dim) * element_bytes(cache_dtype, model) + indexer)


def bytes_per_token(model: ModelGeometry, *, cache_dtype: str = "auto", drafts: bool = True) -> int:
    """Bytes that one token keeps, once, with no window applied; `drafts` adds the layers of the draft."""
    groups = (*model.layers, *(model.drafts if drafts else ()))
    return sum(layer_bytes(each, cache_dtype, model) for each in groups)


def moved_tokens(prompt: int, *, block_size: int, prefix_hit: int = 0) -> int:
    """Tokens that move: what decode does not have yet, rounded up to whole blocks."""
    if block_size < 1 or prompt < 0 or prefix_hit < 0:
        raise ValueError("block size is at least 1, token counts at least 0")
    return ceil(max(0, prompt - prefix_hit) / block_size) * block_size


def window_tokens(tokens: int, window: int | None, *, block_size: int, hybrid_manager: bool) -> int:
    """Tokens that move for layers with a window: with the hybrid manager the window's blocks and one more."""
    if window is None or not hybrid_manager:
        return tokens
    return min(tokens, ceil(window / block_size) * block_size + block_size)


def moved_bytes(
    model: ModelGeometry,
    prompt: int,
    *,
    block_size: int,
    prefix_hit: int = 0,
    cache_dtype: str = "auto",
    hybrid_manager: bool = True,
    decode_tp: int = 1,
    drafts: bool = False,
) -> Moved:
    """Bytes that one prompt of so many tokens moves to a decode engine of that tensor parallel size.

    Heads are divided among ranks; with more ranks than heads each rank reads one head, so copies move. A
    latent cannot be divided: every rank reads all of it. Raises ValueError where heads do not divide evenly.
    """
    if decode_tp < 1:
        raise ValueError("tensor parallel size is at least 1")
    tokens = moved_tokens(prompt, block_size=block_size, prefix_hit=prefix_hit)
    groups = (*model.layers, *(model.drafts if drafts else ()))
    one_copy = per_rank = 0
    for each in groups:
        window = each.window if isinstance(each, HeadLayers) else None
        count = window_tokens(tokens, window, block_size=block_size, hybrid_manager=hybrid_manager)
        size = layer_bytes(each, cache_dtype, model) * count
        one_copy += size
        per_rank += _rank_share(each, size, decode_tp)
    states = [each.count for each in groups if isinstance(each, StateLayers) and tokens]
    return Moved(
        tokens,
        one_copy,
        per_rank,
        per_rank * decode_tp,
        tuple(f"{count} layers with a state of unknown size" for count in states),
    )


def _rank_share(layers: Layers, size: int, decode_tp: int) -> int:
    if not isinstance(layers, HeadLayers):
        return size
    if decode_tp >= layers.kv_heads:
        return size // layers.kv_heads
    if layers.kv_heads % decode_tp != 0:
        raise ValueError(f"{layers.kv_heads} KV heads cannot be divided among {decode_tp} ranks")
    return size // decode_tp


def descriptors(model: ModelGeometry, tokens: int, *, block_size: int, shared_regions: bool = False) -> int:
    """Descriptors of one read: regions times blocks. Keys and values are two regions unless they share one."""
    blocks = ceil(tokens / block_size)
    heads = sum(each.count for each in model.layers if isinstance(each, HeadLayers))
    latents = sum(each.count for each in model.layers if isinstance(each, LatentLayers))
    return blocks * (heads * (1 if shared_regions else 2) + latents)


BytesMeaning = Literal["as-expected", "wide-dtype", "all-ranks-read", "not-evaluable", "off"]


def explain_bytes(
    measured_per_token: float, model: ModelGeometry, *, cache_dtype: str = "auto", decode_tp: int = 1
) -> tuple[BytesMeaning, str]:
    """What measured bytes per transferred token say against the formula (research/telemetry.md 4.4).

    The measure is rate of bytes by rate of tokens from the KV transfer, over all ranks. Within a tenth of the
    formula it is as expected; blocks that are not full raise it, so short prompts tell little.
    """
    latent = model.is_mla
    copies = 1.0 if latent else max(1.0, decode_tp / (model.kv_heads or decode_tp))
    expected = bytes_per_token(model, cache_dtype=cache_dtype, drafts=False) * copies
    if not expected or measured_per_token <= 0:
        return "not-evaluable", "No KV bytes are expected or measured."
    ratio = measured_per_token / expected
    if _near(ratio, 1.0):
        return "as-expected", "The measured bytes are what the formula says."
    if latent and decode_tp > 1 and _near(ratio, float(decode_tp)):
        return "all-ranks-read", f"Each of the {decode_tp} decode ranks reads the whole latent, as MLA does."
    if _near(ratio, 2.0):
        return "wide-dtype", "Twice the formula: the KV dtype is wider than set, or windows are not applied."
    return "off", f"The measured bytes are {ratio:.2f} times the formula."


def _near(ratio: float, wanted: float) -> bool:
    return abs(ratio - wanted) <= 0.1 * wanted
