"""Geometry from config.json: the shapes that are served, and no guess where a number is missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.transfer.bytes import bytes_per_token
from policy.transfer.models import HeadLayers, LatentLayers, StateLayers, read_config

LLAMA_70B = {
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
    "torch_dtype": "bfloat16",
}
GPT_OSS = {
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_size": 2880,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "quantization_config": {"quant_method": "mxfp4"},
}
DEEPSEEK = {
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "num_nextn_predict_layers": 1,
}


def read(config: dict[str, Any]) -> Any:
    found = read_config(config)
    assert found.geometry is not None, found.warnings
    return found.geometry


def test_grouped_heads() -> None:
    geometry = read(LLAMA_70B)
    assert geometry.layers == (HeadLayers(80, 8, 128),)
    assert (geometry.kv_heads, geometry.is_mla, geometry.is_hybrid) == (8, False, False)
    assert geometry.dtype == "bfloat16"
    assert bytes_per_token(geometry) == 327_680


def test_alternating_windows() -> None:
    geometry = read(GPT_OSS)
    assert geometry.layers == (HeadLayers(18, 8, 64), HeadLayers(18, 8, 64, 128))
    assert (geometry.is_hybrid, geometry.quantization) == (True, "mxfp4")
    assert bytes_per_token(geometry) == 73_728


def test_latents_with_their_draft() -> None:
    geometry = read(DEEPSEEK)
    assert geometry.layers == (LatentLayers(61, 512, 64),)
    assert geometry.drafts == (LatentLayers(1, 512, 64),)
    assert geometry.is_mla and geometry.kv_heads is None
    assert bytes_per_token(geometry, drafts=False) == 70_272
    sparse = read(DEEPSEEK | {"index_head_dim": 128})
    assert sparse.layers == (LatentLayers(61, 512, 64, 128),)


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        ({"num_key_value_heads": None}, (HeadLayers(80, 64, 128),)),
        ({"num_key_value_heads": None, "multi_query": True}, (HeadLayers(80, 1, 128),)),
        ({"head_dim": 256}, (HeadLayers(80, 8, 256),)),
        ({"sliding_window": 4096}, (HeadLayers(80, 8, 128, 4096),)),
        ({"sliding_window": 4096, "use_sliding_window": False}, (HeadLayers(80, 8, 128),)),
        (
            {"sliding_window": 1024, "sliding_window_pattern": 5},
            (HeadLayers(16, 8, 128), HeadLayers(64, 8, 128, 1024)),
        ),
        ({"full_attention_interval": 4}, (HeadLayers(20, 8, 128), StateLayers(60))),
        (
            {"layer_types": ["linear_attention", "full_attention"] * 40},
            (HeadLayers(40, 8, 128), StateLayers(40)),
        ),
    ],
)
def test_other_shapes(change: dict[str, Any], layers: Any) -> None:
    assert read(LLAMA_70B | change).layers == layers


def test_the_text_part_of_a_multimodal_model() -> None:
    assert read({"text_config": LLAMA_70B, "num_hidden_layers": 3}).layers == (HeadLayers(80, 8, 128),)


@pytest.mark.parametrize("missing", [("num_hidden_layers",), ("hidden_size",), ("num_attention_heads",)])
def test_a_missing_number_is_said(missing: tuple[str, ...]) -> None:
    config = {name: value for name, value in LLAMA_70B.items() if name not in missing}
    found = read_config(config)
    assert found.geometry is None
    assert found.warnings and "does not say" in found.warnings[0]


def test_what_does_not_add_up_is_said() -> None:
    assert read_config(LLAMA_70B | {"layer_types": ["full_attention"]}).warnings
    assert read_config(LLAMA_70B | {"layer_types": ["sliding_attention"] * 80}).warnings


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 300), st.text(max_size=5), st.lists(st.text(), max_size=3)
)


@given(
    st.dictionaries(
        st.sampled_from([*GPT_OSS, *DEEPSEEK, "text_config", "full_attention_interval"]), ANYTHING
    )
)
def test_nothing_raises(config: dict[str, Any]) -> None:
    found = read_config(config)
    assert (found.geometry is None) <= bool(found.warnings)
