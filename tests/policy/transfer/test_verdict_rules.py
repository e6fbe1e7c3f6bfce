"""Verdicts: run-time checks, settings of one side, other connectors and other engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from policy.transfer.facts import EngineFacts
from policy.transfer.models import MODELS, HeadLayers, ModelGeometry, StateLayers
from tests.policy.transfer.engines import (
    HOST,
    by_id,
    connector,
    facts,
    judge,
    live,
    sglang,
)

GEOMETRY = [
    ("tp-not-divisible", ("-tp=2",), ("-tp=3",), "llama-3-70b"),
    ("prefill-tp-above-heads", ("-tp=16",), ("-tp=8",), "llama-3-70b"),
    ("block-size-not-multiple", ("--block-size=32",), ("--block-size=16",), "llama-3-70b"),
    ("block-size-not-multiple", ("--block-size=16",), ("--block-size=24",), "llama-3-70b"),
    ("block-size-unequal", ("--block-size=16", "-tp=4"), ("--block-size=32",), "llama-3-70b"),
    ("block-size-unequal", ("--block-size=16",), ("--block-size=32",), "gpt-oss-120b"),
    ("decode-pipeline", (), ("--pipeline-parallel-size=2",), "llama-3-70b"),
    ("pipeline-with-hybrid", ("-pp=2",), (), "llama-3-70b"),
    ("nvfp4-tp-differs", ("--kv-cache-dtype=nvfp4",), ("--kv-cache-dtype=nvfp4", "-tp=2"), "llama-3-70b"),
    ("decode-context-parallel-not-divisible", ("-dcp=2",), ("-dcp=3",), "llama-3-70b"),
    ("context-parallel-mixed", ("-pcp=2",), ("-dcp=2",), "llama-3-70b"),
]


@pytest.mark.parametrize(("id", "prefill", "decode", "model"), GEOMETRY)
def test_run_time_checks(id: str, prefill: tuple[str, ...], decode: tuple[str, ...], model: str) -> None:
    shape = {"geometry": MODELS[model]}
    verdict = judge(facts("prefill", *prefill, **shape), facts("decode", *decode, **shape))
    assert verdict.outcome == "incompatible"
    assert by_id(verdict, id).makes == "incompatible"


@pytest.mark.parametrize(
    ("prefill", "decode", "model"),
    [
        (("-tp=2",), ("-tp=8",), "llama-3-70b"),
        (("-tp=8",), ("-tp=2",), "llama-3-70b"),
        (("-tp=8",), ("-tp=16",), "llama-3-70b"),
        (("-tp=16",), ("-tp=16",), "llama-3-70b"),
        (("-tp=16",), ("-tp=4",), "deepseek-v3"),
        (("--block-size=16",), ("--block-size=64",), "llama-3-70b"),
        (("-tp=1", "--block-size=128"), ("-tp=4", "--block-size=128"), "gpt-oss-120b"),
        (("-dcp=2",), ("-dcp=4",), "deepseek-v3"),
    ],
)
def test_what_the_checks_allow(prefill: tuple[str, ...], decode: tuple[str, ...], model: str) -> None:
    shape = {"geometry": MODELS[model]}
    verdict = judge(facts("prefill", *prefill, **shape), facts("decode", *decode, **shape))
    assert verdict.outcome == "compatible", verdict.sentence


@pytest.mark.parametrize(
    ("version", "outcome"),
    [("0.20.0", "incompatible"), ("0.23.0", "unknown"), ("0.29.0", "compatible")],
)
def test_more_decode_ranks_than_heads_by_release(version: str, outcome: str) -> None:
    prefill, decode = facts("prefill", "-tp=8"), facts("decode", "-tp=16")
    assert judge(live(prefill, version=version), live(decode, version=version)).outcome == outcome


def layout(name: str) -> dict[str, Any]:
    return {"env": [{"name": "VLLM_KV_CACHE_LAYOUT", "value": name}]}


PERMUTES = connector("decode", enable_permute_local_kv=True)


@pytest.mark.parametrize(
    ("prefill", "decode", "change", "model", "outcome"),
    [
        ("HND", "LBHNC", {}, "llama-3-70b", "compatible"),
        ("HND", "NHD", {}, "llama-3-70b", "incompatible"),
        ("HND", "NHD", {"transfer": PERMUTES}, "llama-3-70b", "compatible"),
        ("NHD", "HND", {"transfer": PERMUTES}, "llama-3-70b", "incompatible"),
        ("HND", "NHD", {"transfer": PERMUTES}, "gpt-oss-120b", "incompatible"),
        ("HND", "NHD", {}, "deepseek-v3", "compatible"),
        ("NHD", "NHD", {}, "llama-3-70b", "compatible"),
    ],
)
def test_layouts(prefill: str, decode: str, change: dict[str, Any], model: str, outcome: str) -> None:
    shape = {"geometry": MODELS[model]}
    sides = facts("prefill", **layout(prefill), **shape), facts("decode", **layout(decode), **change, **shape)
    assert judge(*sides).outcome == outcome


def test_unequal_ranks_need_heads_that_lie_together() -> None:
    sides = facts("prefill", "-tp=2", **layout("NHD")), facts("decode", "-tp=4", **layout("NHD"))
    assert by_id(judge(*sides), "layout-not-contiguous").makes == "incompatible"
    # The engine turns blocks around only for a prefill side with HND, so this switch does not help here.
    permuting = facts("decode", "-tp=4", **layout("NHD"), transfer=PERMUTES)
    assert by_id(judge(sides[0], permuting), "layout-not-contiguous").makes == "incompatible"


def test_a_host_buffer_needs_equal_blocks() -> None:
    host = connector("decode", kv_buffer_device="cpu")
    verdict = judge(decode=facts("decode", "--block-size=32", transfer=host))
    assert by_id(verdict, "block-size-unequal").makes == "incompatible"


def test_mamba_hybrids_need_the_layout_of_their_convolution() -> None:
    shape = {"geometry": ModelGeometry("", (HeadLayers(12, 2, 256), StateLayers(36)))}
    bare = judge(facts("prefill", **shape), facts("decode", **shape))
    assert {"prefill-conv-layout", "decode-conv-layout"} <= {each.id for each in bare.findings}
    env = [{"name": "VLLM_SSM_CONV_STATE_LAYOUT", "value": "DS"}]
    assert (
        judge(facts("prefill", env=env, **shape), facts("decode", env=env, **shape)).outcome == "compatible"
    )


def test_the_metric_of_the_block_size_decides_nothing() -> None:
    left = "--block-size=auto"
    wrong = {"cache_config": {"block_size": "32"}}
    prefill = live(facts("prefill", left, gpu_product="A"), **wrong)
    decode = live(facts("decode", left, gpu_product="B"), cache_config={"block_size": "16"})
    verdict = judge(prefill, decode)
    assert verdict.outcome == "unknown"
    assert by_id(verdict, "block-size-label").makes is None
    same = judge(prefill, live(facts("decode", left, gpu_product="B"), **wrong))
    assert "block-size" in {each.factor for each in same.missing}


def test_settings_of_one_side() -> None:
    assert judge(facts("prefill", transfer=connector("decode"))).outcome == "incompatible"
    both = judge(
        facts("prefill", transfer=connector("kv_both")), facts("decode", transfer=connector("kv_both"))
    )
    assert (both.outcome, by_id(both, "role-both").severity) == ("compatible", "info")
    local = facts("prefill", env=[{"name": HOST["name"], "value": "localhost"}])
    assert by_id(judge(local), "prefill-side-channel-local").makes == "incompatible"
    # Decode tells nobody its address in pull mode.
    assert (
        judge(decode=facts("decode", env=[{"name": HOST["name"], "value": "localhost"}])).outcome
        == "compatible"
    )
    hidden = connector("decode", kv_load_failure_policy="recompute")
    assert by_id(judge(decode=facts("decode", transfer=hidden)), "failures-hidden").makes is None


def test_connectors() -> None:
    none = judge(decode=facts("decode", transfer=None))
    assert by_id(none, "no-connector").makes == "incompatible"
    mooncake = connector("decode", "MooncakeConnector")
    assert (
        by_id(judge(decode=facts("decode", transfer=mooncake)), "connectors-differ").makes == "incompatible"
    )
    odd = connector("kv_both", "HomeMadeConnector")
    assert judge(facts("prefill", transfer=odd), facts("decode", transfer=odd)).by_identity
    verdict = judge(facts("prefill", transfer=odd), facts("decode", "-tp=2", transfer=odd))
    assert (verdict.outcome, "connector") == ("unknown", verdict.missing[0].factor)


def test_mooncake_wants_equal_ranks_and_checks_nothing_itself() -> None:
    def side(role: str, *flags: str) -> EngineFacts:
        return facts(role, *flags, transfer=connector(role, "MooncakeConnector"))

    assert judge(side("prefill"), side("decode")).outcome == "compatible"
    unequal = judge(side("prefill", "-tp=2"), side("decode", "-tp=4"))
    assert by_id(unequal, "mooncake-tp-differs").makes == "incompatible"
    unlike = judge(side("prefill"), side("decode", "--dtype=float16"))
    assert unlike.outcome == "dangerous"
    assert "checks nothing" in by_id(unlike, "differs-dtype").sentence


SGLANG: list[tuple[Callable[[], EngineFacts], str, str | None]] = [
    (lambda: sglang("decode"), "compatible", None),
    (lambda: sglang("decode", "--page-size=16"), "incompatible", "differs-page-size"),
    (lambda: sglang("decode", "--kv-cache-dtype=bfloat16"), "incompatible", "differs-kv-cache-dtype"),
    (lambda: sglang("decode", "--disaggregation-transfer-backend=nixl"), "incompatible", None),
    (lambda: sglang("prefill"), "incompatible", "decode-mode-wrong"),
    (lambda: sglang("decode", "--model-path=other"), "dangerous", "differs-model"),
    (lambda: sglang("decode", "--speculative-algorithm=EAGLE"), "dangerous", "differs-speculative"),
    (lambda: live(sglang("decode"), version="0.5.20"), "dangerous", "differs-vllm-version"),
    (lambda: sglang("decode", "--tp=4"), "slow", "sglang-tp-differs"),
    (lambda: sglang("decode", "--tp=4", geometry=MODELS["gpt-oss-120b"]), "incompatible", "sglang-hybrid-tp"),
    (lambda: sglang("decode", "--revision=" + "d" * 40), "dangerous", "weights-differ"),
]


@pytest.mark.parametrize(("decode", "outcome", "id"), SGLANG)
def test_sglang(decode: Callable[[], EngineFacts], outcome: str, id: str | None) -> None:
    side = decode()
    verdict = judge(replace(sglang("prefill"), geometry=side.geometry), side)
    assert verdict.outcome == outcome, (verdict.sentence, verdict.findings)
    if id is not None:
        by_id(verdict, id)


def test_two_engines_never_fit() -> None:
    verdict = judge(sglang("prefill"), facts("decode"))
    assert by_id(verdict, "engines-differ").makes == "incompatible"
