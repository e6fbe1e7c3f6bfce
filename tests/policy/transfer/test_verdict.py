"""Verdicts: every factor of the hash, identity, what must not be mixed, what is slow, what is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from policy.transfer.facts import EngineFacts, LinkFacts, LiveFacts, RevisionFacts
from policy.transfer.models import MODELS
from policy.transfer.values import Side
from policy.transfer.verdict import judge_pairs
from tests.policy.transfer.engines import (
    COMMIT,
    DIGEST,
    OTHER_DIGEST,
    arguments,
    by_id,
    connector,
    facts,
    judge,
    live,
    script,
)


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
