"""Verdicts: every factor and rule by its table, each outcome with its reason and its sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from policy.transfer.facts import EngineFacts, LinkFacts, LiveFacts, RevisionFacts
from policy.transfer.findings import Finding, Verdict
from policy.transfer.models import MODELS, HeadLayers, ModelGeometry, StateLayers
from policy.transfer.values import Side
from policy.transfer.verdict import judge_pair, judge_pairs
from tests.policy.transfer.engines import (
    COMMIT,
    DIGEST,
    HOST,
    OTHER_DIGEST,
    arguments,
    connector,
    facts,
    live,
    script,
    sglang,
)


def judge(prefill: EngineFacts | None = None, decode: EngineFacts | None = None) -> Verdict:
    return judge_pair(prefill or facts("prefill"), decode or facts("decode"))


def by_id(verdict: Verdict, id: str) -> Finding:
    found = [each for each in verdict.findings if each.id == id]
    assert found, f"{id} is not among {[each.id for each in verdict.findings]}"
    return found[0]


def test_everything_known_and_equal_is_compatible() -> None:
    verdict = judge(decode=facts("decode", "--tensor-parallel-size", "4"))
    assert (verdict.outcome, verdict.missing, verdict.by_identity) == ("compatible", (), False)
    assert verdict.findings == ()
    assert all(each.state != "unknown" for each in verdict.factors)
    assert any("1 on prefill and 4 on decode" in said for said in verdict.rests_on)


def test_the_same_engine_is_compatible_by_identity_and_says_on_what_that_rests() -> None:
    plain = {
        "image_digests": (DIGEST,),
        "gpu_product": "H100",
        "live": LiveFacts(),
        "geometry": None,
    }
    prefill = facts("prefill", arguments=arguments("prefill"), **plain)
    decode = facts("decode", arguments=arguments("decode"), **plain)
    verdict = judge(prefill, decode)
    assert (verdict.outcome, verdict.by_identity, verdict.missing) == ("compatible", True, ())
    said = " ".join(verdict.rests_on)
    assert "sha256:" + "a" * 64 in said and "H100" in said and "not pinned" in said
    for change in ({"gpu_product": "H200"}, {"image_digests": (OTHER_DIGEST,)}, {"image_digests": ()}):
        assert judge(prefill, replace(decode, **change)).outcome in ("unknown", "dangerous")


def test_the_same_unread_script_is_the_same_engine() -> None:
    same = EngineFacts(script("vllm serve m $FLAGS"), image_digests=(DIGEST,), gpu_product="H100")
    other = replace(same, arguments=script("vllm serve m --block-size 32"))
    assert judge(same, same).by_identity
    assert any("not read" in said for said in judge(same, same).rests_on)
    assert judge(same, other).outcome == "unknown"


def test_equal_files_are_recognised_by_their_content() -> None:
    def side(role: str, digest: str | None) -> EngineFacts:
        files = {"/etc/v.yaml": digest} if digest else {}
        return EngineFacts(
            arguments(role, "--config", "/etc/v.yaml"),
            image_digests=(DIGEST,),
            gpu_product="H100",
            file_digests=files,
        )

    assert judge(side("prefill", "x"), side("decode", "x")).by_identity
    assert judge(side("prefill", "x"), side("decode", "y")).outcome == "unknown"
    assert judge(side("prefill", None), side("decode", None)).outcome == "unknown"


HASHED = [
    ("vllm-version", {}, {"version": "0.33.0"}),
    ("vllm-version", {}, {"version": "0.30.0+cu130"}),
    ("model", {"model": "/models/llama"}, {}),
    ("dtype", {"flags": ("--dtype=float16",)}, {}),
    ("kv-geometry", {"geometry": MODELS["llama-3-8b"]}, {}),
    ("attention-backend", {"flags": ("--attention-backend=FLASHINFER",)}, {}),
    ("attention-backend", {}, {"attention_backend": "FLASHINFER"}),
    ("kv-cache-dtype", {"flags": ("--kv-cache-dtype=fp8_e4m3",)}, {}),
    ("kv-cache-dtype", {}, {"cache_config": {"cache_dtype": "fp8_e5m2"}}),
    ("hybrid-kv-manager", {"flags": ("--disable-hybrid-kv-cache-manager",)}, {}),
    ("speculative", {"flags": ('--speculative-config={"method": "eagle3", "model": "d"}',)}, {}),
    ("transfer-mode", {"transfer": connector("decode", "NixlPushConnector")}, {}),
]


@pytest.mark.parametrize(("factor", "change", "said"), HASHED)
def test_each_factor_of_the_hash(factor: str, change: dict[str, Any], said: dict[str, Any]) -> None:
    flags = change.pop("flags", ())
    decode = live(facts("decode", *flags, **change), **said)
    change["flags"] = flags
    verdict = judge(decode=decode)
    assert verdict.outcome == "incompatible"
    found = by_id(verdict, f"differs-{factor}")
    assert (found.factor, found.makes, found.severity) == (factor, "incompatible", "block")
    assert found.prefill.value != found.decode.value
    assert found.prefill.source and found.decode.source
    assert found.prefill.value in found.sentence and found.decode.source in found.sentence


def in_release(version: str, *flags: str, **given: Any) -> tuple[EngineFacts, EngineFacts]:
    sides = facts("prefill"), facts("decode", *flags, **given)
    return live(sides[0], version=version), live(sides[1], version=version)


@pytest.mark.parametrize(
    ("version", "outcome"),
    [
        ("0.14.0", "dangerous"),
        ("0.17.1", "dangerous"),
        ("0.18.0", "dangerous"),
        ("0.20.0", "incompatible"),
        ("0.30.0", "incompatible"),
        ("0.33.0", "incompatible"),
        ("0.40.0", "dangerous"),
    ],
)
def test_the_hybrid_manager_is_hashed_from_0_20_on(version: str, outcome: str) -> None:
    assert judge(*in_release(version, "--disable-hybrid-kv-cache-manager")).outcome == outcome


@pytest.mark.parametrize(
    ("version", "outcome"),
    [
        ("0.23.0", "dangerous"),
        ("0.26.0", "dangerous"),
        ("0.29.0", "incompatible"),
        ("0.33.0", "incompatible"),
    ],
)
def test_drafts_and_modes_are_hashed_from_0_29_on(version: str, outcome: str) -> None:
    draft = '--speculative-config={"method": "mtp", "num_speculative_tokens": 2}'
    assert judge(*in_release(version, draft)).outcome == outcome
    push = in_release(version, transfer=connector("decode", "NixlPushConnector"))
    assert judge(*push).outcome == outcome


@pytest.mark.parametrize(
    ("version", "outcome"),
    [
        ("0.14.0", "dangerous"),
        ("0.17.0", "incompatible"),
        ("0.26.0", "incompatible"),
        ("0.30.0", "compatible"),
    ],
)
def test_cross_layer_blocks_came_and_went(version: str, outcome: str) -> None:
    crossing = connector("decode", kv_connector_extra_config={"enable_cross_layers_blocks": "True"})
    assert judge(*in_release(version, transfer=crossing)).outcome == outcome


def test_what_a_release_does_is_said_as_far_as_it_is_known() -> None:
    said = {
        version: by_id(
            judge(*in_release(version, "--disable-hybrid-kv-cache-manager")), "differs-hybrid-kv-manager"
        ).sentence
        for version in ("0.14.0", "0.18.0", "0.30.0")
    }
    assert "does not compare it" in said["0.14.0"]
    assert "not known here" in said["0.18.0"]
    assert "refuses it" in said["0.30.0"]


def test_overrides_that_change_the_shape() -> None:
    fewer = '--hf-overrides={"num_hidden_layers": %d}'
    assert (
        by_id(judge(decode=facts("decode", fewer % 40)), "differs-kv-geometry").decode.value == "8, 128, 40"
    )
    assert judge(facts("prefill", fewer % 40), facts("decode", fewer % 40)).outcome == "compatible"
    # The same number as in config.json changes nothing.
    assert judge(decode=facts("decode", fewer % 80)).outcome == "compatible"
    wider = '--hf-overrides={"hidden_size": 4096}'
    verdict = judge(decode=facts("decode", wider))
    assert (verdict.outcome, {each.factor for each in verdict.missing}) == ("unknown", {"kv-geometry"})


def test_the_number_of_draft_tokens_may_differ() -> None:
    draft = '--speculative-config={{"method": "mtp", "num_speculative_tokens": {}}}'
    plain = '--speculative-config={"method": "ngram"}'
    assert judge(facts("prefill", draft.format(1)), facts("decode", draft.format(3))).outcome == "compatible"
    assert judge(facts("prefill"), facts("decode", plain)).outcome == "compatible"


def test_spellings_of_one_dtype_are_one_dtype() -> None:
    assert judge(facts("prefill", "--dtype=half"), facts("decode", "--dtype=float16")).outcome == "compatible"


def test_protocol_numbers_are_told() -> None:
    verdict = judge(decode=live(facts("decode"), version="0.33.0"))
    assert "11 and 15" in by_id(verdict, "differs-vllm-version").sentence


def test_auto_never_becomes_bfloat16() -> None:
    verdict = judge(facts("prefill", "--kv-cache-dtype=auto"), facts("decode", "--kv-cache-dtype=bfloat16"))
    assert verdict.outcome == "incompatible"
    verdict = judge(facts("prefill", "--kv-cache-dtype=auto"), facts("decode", "--kv-cache-dtype=fp8"))
    assert verdict.outcome == "unknown"
    assert [(each.side, each.factor) for each in verdict.missing] == [("prefill", "kv-cache-dtype")]


def test_tags_prove_a_difference_and_no_equality() -> None:
    def side(role: str, image: str) -> EngineFacts:
        return facts(role, image=image, live=LiveFacts(), image_digests=())

    old = side("prefill", "vllm/vllm-openai:v0.30.0")
    assert judge(old, side("decode", "vllm/vllm-openai:v0.33.0")).outcome == "incompatible"
    same = judge(old, side("decode", "vllm/vllm-openai:v0.30.0"))
    assert same.outcome == "unknown"
    assert {each.factor for each in same.missing} == {"vllm-version", "image"}


def test_equal_hashes_in_the_logs_prove_what_is_not_seen() -> None:
    left = [facts(role, "--attention-backend=auto", gpu_product=None) for role in ("prefill", "decode")]
    assert judge(*left).outcome == "unknown"
    assert judge(*(live(each, compatibility_hash="7f") for each in left)).outcome == "compatible"
    verdict = judge(live(left[0], compatibility_hash="7f"), live(left[1], compatibility_hash="80"))
    assert by_id(verdict, "differs-hash").makes == "incompatible"


def test_two_generations_of_gpu_may_choose_two_backends() -> None:
    left = ("--attention-backend=auto",)
    verdict = judge(facts("prefill", *left), facts("decode", *left, gpu_product="NVIDIA-B200"))
    assert verdict.outcome == "unknown"
    assert {each.factor for each in verdict.missing} == {"attention-backend"}
    assert judge(facts("prefill", *left), facts("decode", *left)).outcome == "compatible"


OFF = {"kv_connector_extra_config": {"enforce_handshake_compat": False}}


def test_without_enforcement_a_difference_is_dangerous() -> None:
    off = facts("decode", "--dtype=float16", transfer=connector("decode", **OFF))
    verdict = judge(decode=off)
    assert verdict.outcome == "dangerous"
    assert by_id(verdict, "enforcement-off").makes == "dangerous"
    assert by_id(verdict, "differs-dtype").makes == "dangerous"
    # In pull mode decode is the one that checks.
    writer = facts("prefill", "--dtype=float16", transfer=connector("prefill", **OFF))
    assert judge(writer).outcome == "incompatible"


def test_geometry_refuses_even_without_enforcement() -> None:
    off = facts("decode", "--tensor-parallel-size=3", transfer=connector("decode", **OFF))
    assert judge(facts("prefill", "-tp=2"), off).outcome == "incompatible"


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


DANGERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("weights-differ", {}, {"flags": ("--revision", "d" * 40)}),
    ("weights-differ", {"model_artifact": "one"}, {"model_artifact": "other"}),
    ("quantization-differs", {}, {"flags": ("--quantization=awq",)}),
    ("overrides-differ", {}, {"flags": ('--hf-overrides={"rope_theta": 1000000}',)}),
    ("rope-theta-differs", {}, {"flags": ("--rope-theta=1000000",)}),
    ("tokenizer-differs", {}, {"flags": ("--tokenizer=other",)}),
    ("lora-modules-differs", {}, {"flags": ("--lora-modules", "a=b")}),
    ("kv-scales-calculated", {}, {"flags": ("--calculate-kv-scales",)}),
    ("tag-moved", {}, {"image_digests": (OTHER_DIGEST,)}),
    ("decode-digests-mixed", {}, {"image_digests": (DIGEST, OTHER_DIGEST)}),
]


@pytest.mark.parametrize(("id", "prefill", "decode"), DANGERS)
def test_what_the_check_lets_in_and_must_not_be_mixed(
    id: str, prefill: dict[str, Any], decode: dict[str, Any]
) -> None:
    sides: list[EngineFacts] = []
    roles: tuple[Side, Side] = ("prefill", "decode")
    for role, given in zip(roles, (prefill, decode), strict=True):
        fields = {name: value for name, value in given.items() if name != "flags"}
        sides.append(facts(role, *given.get("flags", ()), **fields))
    verdict = judge(*sides)
    assert verdict.outcome == "dangerous"
    assert (by_id(verdict, id).makes, by_id(verdict, id).severity) == ("dangerous", "block")
    assert not verdict.may_meet


def test_an_unpinned_model_is_a_missing_fact() -> None:
    bare = [facts(role, "--revision", "main") for role in ("prefill", "decode")]
    verdict = judge(*(replace(each, image_digests=(name,)) for each, name in zip(bare, "xy", strict=True)))
    assert ("prefill", "model-revision") in {(each.side, each.factor) for each in verdict.missing}
    loaded = [replace(each, model_artifact=COMMIT) for each in bare]
    assert judge(*loaded).outcome == "compatible"


def test_two_builds_of_one_version_are_told() -> None:
    decode = facts("decode", image="mirror.example/engine:7", image_digests=(OTHER_DIGEST,))
    verdict = judge(decode=decode)
    assert verdict.outcome == "compatible"
    assert by_id(verdict, "builds-differ").severity == "info"


@pytest.mark.parametrize(
    ("id", "change"),
    [
        ("no-rdma", {"link": LinkFacts(rdma=False)}),
        ("no-rdma", {"env": [{"name": "UCX_TLS", "value": "tcp,cuda_copy,cuda_ipc"}]}),
        ("fabric-differs", {"link": LinkFacts(rdma=True, fabric="zone-a/leaf-2")}),
    ],
)
def test_a_slow_way(id: str, change: dict[str, Any]) -> None:
    verdict = judge(decode=facts("decode", **change))
    assert (verdict.outcome, verdict.may_meet) == ("slow", True)
    assert by_id(verdict, id).severity == "warn"


def test_reads_on_one_node_without_rdma() -> None:
    link = LinkFacts(rdma=False, nodes=frozenset({"n1", "n2"}))
    verdict = judge(facts("prefill", link=link), facts("decode", link=replace(link, nodes=frozenset({"n2"}))))
    assert "n2" in by_id(verdict, "cuda-ipc-pull").sentence


def test_slow_is_said_only_where_all_else_is_known() -> None:
    left = facts("decode", "--attention-backend=auto", link=LinkFacts(rdma=False))
    verdict = judge(decode=left)
    assert verdict.outcome == "unknown"
    assert by_id(verdict, "no-rdma").makes == "slow"


def test_unread_flags_are_listed() -> None:
    verdict = judge(decode=facts("decode", arguments=script("vllm serve m")))
    assert verdict.outcome == "unknown"
    assert {each.side for each in verdict.missing} == {"decode"}
    assert {"model", "dtype", "kv-cache-dtype", "block-size", "connector"} <= {
        each.factor for each in verdict.missing
    }
    assert "script" in " ".join(each.fact + each.where for each in verdict.missing)


def test_a_file_may_set_more_than_is_given() -> None:
    verdict = judge(decode=facts("decode", "--config=/etc/v.yaml"))
    assert verdict.outcome == "unknown"
    assert any("/etc/v.yaml" in each.where for each in verdict.missing)


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


def test_every_pair_of_revisions_with_who_may_meet() -> None:
    old = RevisionFacts("old", facts("prefill"), facts("decode"))
    new = RevisionFacts(
        "new", live(facts("prefill"), version="0.33.0"), live(facts("decode"), version="0.33.0")
    )
    half = RevisionFacts("half", facts("prefill"), None)
    kept = judge_pairs([old, new, half], allowed=False)
    assert [(each.prefill_revision, each.decode_revision) for each in kept] == [
        ("old", "old"),
        ("old", "new"),
        ("new", "old"),
        ("new", "new"),
        ("half", "old"),
        ("half", "new"),
    ]
    assert {each.prefill_revision for each in kept if each.allowed} == {"old", "new"}
    assert not any(each.blocks for each in kept)
    mixed = judge_pairs([old, new], allowed=True)
    blocking = [(each.prefill_revision, each.decode_revision) for each in mixed if each.blocks]
    assert blocking == [("old", "new"), ("new", "old")]


def test_a_wrapped_connector_leaves_the_hybrid_manager_open() -> None:
    inner = {"connectors": [json.loads(connector("decode"))]}
    wrapped = json.dumps(
        {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": inner}
    )
    left = ("--disable-hybrid-kv-cache-manager=auto",)
    verdict = judge(facts("prefill", *left), facts("decode", *left, transfer=wrapped))
    assert verdict.outcome == "unknown"
    assert {each.factor for each in verdict.missing} == {"hybrid-kv-manager"}
