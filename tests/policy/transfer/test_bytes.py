"""KV bytes: the published numbers, and what must hold for any model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.transfer.bytes import (
    UnknownSize,
    bytes_per_token,
    descriptors,
    explain_bytes,
    moved_bytes,
    moved_tokens,
)
from policy.transfer.models import MODELS, HeadLayers, LatentLayers, ModelGeometry, StateLayers

GB = 10**9
LLAMA_70B = MODELS["llama-3-70b"]
GPT_OSS = MODELS["gpt-oss-120b"]
DEEPSEEK = MODELS["deepseek-v3"]
MHA_70B = ModelGeometry("70B with 64 KV heads", (HeadLayers(80, 64, 128),))


@pytest.mark.parametrize(
    ("model", "per_token"),
    [
        (MODELS["llama-3-8b"], 131_072),
        (LLAMA_70B, 327_680),
        (MODELS["qwen3-32b"], 262_144),
        (MODELS["llama-3.1-405b"], 516_096),
        (DEEPSEEK, 70_272),
        (GPT_OSS, 73_728),
        (MHA_70B, 2_621_440),
    ],
)
def test_bytes_per_token_of_the_published_table(model: ModelGeometry, per_token: int) -> None:
    assert bytes_per_token(model) == per_token


@pytest.mark.parametrize(
    ("model", "short", "long"),
    [
        (MODELS["llama-3-8b"], 0.537, 4.29),
        (LLAMA_70B, 1.342, 10.7),
        (MODELS["qwen3-32b"], 1.074, 8.59),
        (MODELS["llama-3.1-405b"], 2.11, 16.9),
        (DEEPSEEK, 0.288, 2.30),
        (MHA_70B, 10.7, 85.9),
    ],
)
def test_prompts_of_4096_and_32768_tokens(model: ModelGeometry, short: float, long: float) -> None:
    for prompt, wanted in ((4096, short), (32768, long)):
        moved = moved_bytes(model, prompt, block_size=16)
        assert moved.tokens == prompt
        assert moved.per_decode_rank / GB == pytest.approx(wanted, rel=0.005)


def test_the_common_claim_of_1_5_to_2_gb_is_too_high() -> None:
    moved = moved_bytes(LLAMA_70B, 4096, block_size=16)
    assert moved.one_copy == 1_342_177_280 == 5 * 2**28
    assert moved_bytes(LLAMA_70B, 4096, block_size=16, cache_dtype="fp8").one_copy == 671_088_640
    for gb, tokens in ((1.5, 4578), (2.0, 6104)):
        assert tokens * bytes_per_token(LLAMA_70B) / GB == pytest.approx(gb, rel=1e-3)


@pytest.mark.parametrize(("block_size", "gb"), [(16, 0.156), (128, 0.160)])
def test_windows_of_gpt_oss_are_cut_by_the_hybrid_manager(block_size: int, gb: float) -> None:
    assert moved_bytes(GPT_OSS, 4096, block_size=block_size).one_copy / GB == pytest.approx(gb, abs=5e-4)
    whole = moved_bytes(GPT_OSS, 4096, block_size=block_size, hybrid_manager=False)
    assert whole.one_copy / GB == pytest.approx(0.302, abs=5e-4)


def test_long_prompts_of_gpt_oss() -> None:
    assert moved_bytes(GPT_OSS, 32768, block_size=16).one_copy / GB == pytest.approx(1.21, abs=6e-3)
    whole = moved_bytes(GPT_OSS, 32768, block_size=16, hybrid_manager=False)
    assert whole.one_copy / GB == pytest.approx(2.42, abs=6e-3)


def test_nine_tokens_move_a_whole_block_as_was_measured() -> None:
    """A public log shows 917504 bytes for a 9-token prompt of a model with 28 layers and 4 KV heads."""
    model = ModelGeometry("", (HeadLayers(28, 4, 128),), dtype="bfloat16")
    moved = moved_bytes(model, 9, block_size=16)
    assert (moved.tokens, moved.one_copy) == (16, 917_504)
    assert bytes_per_token(model) == 57_344


def test_packed_latents_of_v3_2_with_their_indexer() -> None:
    model = ModelGeometry("", (LatentLayers(61, 512, 64),))
    assert bytes_per_token(model, cache_dtype="fp8_ds_mla") == 61 * 656
    sparse = ModelGeometry("", (LatentLayers(61, 512, 64, indexer_dim=128),))
    assert bytes_per_token(sparse, cache_dtype="fp8_ds_mla") == 61 * (656 + 132)


def test_draft_layers_add_their_own() -> None:
    model = replace(LLAMA_70B, drafts=(HeadLayers(1, 8, 128),))
    assert bytes_per_token(model) == 327_680 + 4096
    assert bytes_per_token(model, drafts=False) == 327_680
    plain = moved_bytes(model, 4096, block_size=16)
    drafted = moved_bytes(model, 4096, block_size=16, drafts=True)
    assert drafted.one_copy - plain.one_copy == 4096 * 4096


def test_more_ranks_than_heads_move_copies() -> None:
    for ranks, copies in ((1, 1), (4, 1), (8, 1), (16, 2), (32, 4)):
        moved = moved_bytes(LLAMA_70B, 4096, block_size=16, decode_tp=ranks)
        assert moved.total == copies * moved.one_copy
        assert moved.copies == copies


def test_each_rank_reads_the_whole_latent() -> None:
    moved = moved_bytes(DEEPSEEK, 4096, block_size=16, decode_tp=8)
    assert moved.per_decode_rank == moved.one_copy == 287_834_112
    assert moved.copies == 8


def test_layers_with_a_state_are_named_and_not_counted_as_nothing() -> None:
    model = ModelGeometry("", (HeadLayers(12, 2, 256), StateLayers(36)))
    moved = moved_bytes(model, 100, block_size=16)
    assert moved.unmeasured == ("36 layers with a state of unknown size",)
    assert moved_bytes(model, 100, block_size=16, prefix_hit=100).unmeasured == ()


def test_unknown_sizes_are_refused_instead_of_guessed() -> None:
    with pytest.raises(UnknownSize):
        bytes_per_token(LLAMA_70B, cache_dtype="nvfp4")
    with pytest.raises(ValueError, match="cannot be divided"):
        moved_bytes(LLAMA_70B, 10, block_size=16, decode_tp=3)
    with pytest.raises(ValueError, match="at least 1"):
        moved_bytes(LLAMA_70B, 10, block_size=0)
    with pytest.raises(ValueError, match="at least 1"):
        moved_bytes(LLAMA_70B, 10, block_size=16, decode_tp=0)


def test_descriptors_are_regions_times_blocks() -> None:
    assert descriptors(LLAMA_70B, 4096, block_size=16) == 40_960
    assert descriptors(LLAMA_70B, 4096, block_size=128) == 5_120
    assert descriptors(LLAMA_70B, 4096, block_size=16, shared_regions=True) == 20_480
    assert descriptors(DEEPSEEK, 4096, block_size=64) == 61 * 64


@pytest.mark.parametrize(
    ("measured", "model", "ranks", "meaning"),
    [
        (327_680, LLAMA_70B, 8, "as-expected"),
        (340_000, LLAMA_70B, 8, "as-expected"),
        (655_360, LLAMA_70B, 16, "as-expected"),
        (655_360, LLAMA_70B, 8, "wide-dtype"),
        (70_272 * 8, DEEPSEEK, 8, "all-ranks-read"),
        (100_000, LLAMA_70B, 8, "off"),
        (0, LLAMA_70B, 8, "not-evaluable"),
    ],
)
def test_what_measured_bytes_mean(measured: float, model: ModelGeometry, ranks: int, meaning: str) -> None:
    found, sentence = explain_bytes(measured, model, decode_tp=ranks)
    assert found == meaning
    assert sentence


groups = st.one_of(
    st.builds(
        HeadLayers,
        st.integers(1, 80),
        st.sampled_from([1, 2, 4, 8, 16]),
        st.sampled_from([64, 128, 256]),
        st.one_of(st.none(), st.integers(1, 4096)),
    ),
    st.builds(LatentLayers, st.integers(1, 80), st.just(512), st.just(64), st.sampled_from([0, 128])),
)
models = st.builds(ModelGeometry, st.just(""), st.lists(groups, min_size=1, max_size=3).map(tuple))
sizes = st.fixed_dictionaries(
    {
        "block_size": st.sampled_from([1, 8, 16, 64, 128]),
        "hybrid_manager": st.booleans(),
        "decode_tp": st.sampled_from([1, 2, 4, 8, 16, 32]),
        "cache_dtype": st.sampled_from(["auto", "fp8", "bfloat16"]),
    }
)
prompts = st.integers(0, 200_000)


def moved(model: ModelGeometry, prompt: int, options: dict[str, object]) -> int | None:
    try:
        return moved_bytes(model, prompt, **options).total  # type: ignore[arg-type]
    except ValueError:
        return None  # heads that do not divide


@given(models, sizes, prompts, prompts)
def test_more_tokens_never_move_fewer_bytes(
    model: ModelGeometry, options: dict[str, object], one: int, other: int
) -> None:
    less, more = moved(model, min(one, other), options), moved(model, max(one, other), options)
    assert (less is None) == (more is None)
    assert less is None or more is None or less <= more


@given(models, models, sizes, prompts)
def test_layers_add_up(
    one: ModelGeometry, other: ModelGeometry, options: dict[str, object], prompt: int
) -> None:
    both = ModelGeometry("", (*one.layers, *other.layers))
    parts = moved(one, prompt, options), moved(other, prompt, options)
    if None not in parts:
        assert moved(both, prompt, options) == sum(part for part in parts if part is not None)


@given(prompts, st.integers(0, 200_000), st.integers(1, 512))
def test_blocks_are_rounded_up_by_less_than_one(prompt: int, hit: int, block_size: int) -> None:
    tokens = moved_tokens(prompt, block_size=block_size, prefix_hit=hit)
    assert tokens % block_size == 0
    assert 0 <= tokens - max(0, prompt - hit) < block_size


@given(models, sizes, prompts)
def test_ranks_read_all_of_it_together(model: ModelGeometry, options: dict[str, object], prompt: int) -> None:
    ranks = options["decode_tp"]
    assert isinstance(ranks, int)
    try:
        found = moved_bytes(model, prompt, **options)  # type: ignore[arg-type]
    except ValueError:
        return
    assert found.total == ranks * found.per_decode_rank
    assert found.one_copy <= found.total <= ranks * found.one_copy
    if ranks <= min((each.kv_heads for each in model.layers if isinstance(each, HeadLayers)), default=0):
        assert model.is_mla or found.total == found.one_copy


@given(models, sizes, prompts)
def test_windows_and_narrow_dtypes_never_move_more(
    model: ModelGeometry, options: dict[str, object], prompt: int
) -> None:
    whole = moved(model, prompt, options | {"hybrid_manager": False, "cache_dtype": "bfloat16"})
    if whole is not None:
        assert moved(model, prompt, options | {"hybrid_manager": True, "cache_dtype": "fp8"}) <= whole
