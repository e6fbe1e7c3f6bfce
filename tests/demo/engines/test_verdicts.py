"""The simulated engine and the product's verdict are written apart; what one refuses, the other must have foreseen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as some
from prometheus_client.parser import text_string_to_metric_families

from deploy.demo.engines import compat
from deploy.demo.engines.metrics import Metrics
from deploy.demo.engines.pods import read_pod
from deploy.demo.engines.spec import EngineSpec, engine_spec
from policy.transfer.arguments import read_container
from policy.transfer.facts import EngineFacts, LiveFacts
from policy.transfer.findings import Verdict
from policy.transfer.models import MODELS
from policy.transfer.verdict import judge_pair
from tests.demo.engines.cluster import pod
from tests.demo.engines.test_pairs import FACTORS, GEOMETRY, IGNORED, WEIGHTS

MODEL = "meta-llama/Llama-3.1-8B"
Options = dict[str, Any]


def side(role: str, options: Options) -> tuple[EngineSpec, EngineFacts]:
    """An engine, and all that a control plane can know of it."""
    document = pod(role, role, 1, **{"model": MODEL, **options})
    read = read_pod(document)
    assert read is not None
    spec = engine_spec(read)
    families = text_string_to_metric_families(Metrics(spec, created=1.0).exposition())
    labels = next(family.samples[0].labels for family in families if family.name == "vllm:cache_config_info")
    live = LiveFacts(
        engine="vllm",
        version=spec.version,
        cache_config=labels,
        attention_backend=spec.backend,
        model_root=spec.model,
    )
    facts = EngineFacts(
        read_container(document["spec"]["containers"][0]),
        image_digests=("sha256:" + spec.version.encode().hex().ljust(64, "0"),),
        live=live,
        gpu_product="NVIDIA-H200",
        geometry=MODELS["llama-3-8b"],
        model_artifact=f"commit:{spec.revision}",
    )
    return spec, facts


def seen(prefill: Options, decode: Options) -> tuple[str, float, Verdict]:
    """What the engine does (why it refuses, what it spoils), and what the verdict says."""
    (source, source_facts), (reader, reader_facts) = side("prefill", prefill), side("decode", decode)
    refused = compat.refusal(reader, source)
    return (
        refused,
        0.0 if refused else compat.spoiled_share(reader, source),
        judge_pair(source_facts, reader_facts),
    )


def agree(prefill: Options, decode: Options) -> None:
    refused, spoiled, verdict = seen(prefill, decode)
    case = (refused, verdict.sentence, prefill, {k: v for k, v in decode.items() if prefill.get(k) != v})
    if refused:
        assert not verdict.may_meet, case
    elif spoiled:
        assert not verdict.may_meet, case
    if verdict.outcome == "incompatible":
        assert refused, case


CASES = {
    **FACTORS,
    **IGNORED,
    **WEIGHTS,
    **{name: case[:2] for name, case in GEOMETRY.items()},
    "equal": ({}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_engine_and_verdict_agree_on_every_rule(name: str) -> None:
    agree(*CASES[name])


def test_equal_engines_of_which_all_is_known_may_meet() -> None:
    _, _, verdict = seen(
        {"extra": ["--no-disable-hybrid-kv-cache-manager"]},
        {"extra": ["--no-disable-hybrid-kv-cache-manager"]},
    )
    assert verdict.may_meet, (verdict.sentence, verdict.missing)


_CHOICES: dict[str, list[Any]] = {
    "version": ["0.20.0", "0.26.0", "0.30.0", "0.33.0"],
    "model_revision": ["", "v2"],
    "tp": [1, 2, 3, 4, 16],
    "quantization": ["", "fp8"],
    "dtype": ["", "float16", "bfloat16"],
    "kv_cache_dtype": ["", "auto", "fp8", "nvfp4"],
    "block_size": [0, 16, 32, 48],
    "attention_backend": ["", "FLASHINFER"],
    "max_model_len": [4096, 8192],
    "speculative": [
        None,
        {"method": "ngram", "num_speculative_tokens": 2},
        {"method": "eagle3", "model": "draft", "num_speculative_tokens": 3},
    ],
    "transfer": [{}, {"kv_buffer_device": "cpu"}],
    "transfer_extra": [{}, {"enforce_handshake_compat": False}],
    "env": [{}, {"VLLM_KV_CACHE_LAYOUT": "NHD"}],
    "extra": [[], ["--disable-hybrid-kv-cache-manager"], ["--hf-overrides", '{"rope_theta": 5e5}']],
}
# Mostly equal sides: otherwise nearly every pair would differ in the first factor.
_BASE = some.fixed_dictionaries({name: some.sampled_from(values) for name, values in _CHOICES.items()})
_CHANGES = some.lists(some.sampled_from(sorted(_CHOICES)), max_size=2, unique=True)


# Cases say what differs; shrinking them would take minutes.
@settings(max_examples=200, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(_BASE, _CHANGES, some.data())
def test_engine_and_verdict_agree_on_any_two_engines(
    base: Options, changes: list[str], data: some.DataObject
) -> None:
    other = dict(base)
    for name in changes:
        other[name] = data.draw(some.sampled_from(_CHOICES[name]))
    agree(base, other)
