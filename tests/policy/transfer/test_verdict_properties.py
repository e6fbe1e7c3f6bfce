"""What must hold for any pair: knowing more never heals, knowing little is never called compatible."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policy.transfer.arguments import EngineArguments, read_engine
from policy.transfer.facts import EngineFacts, LinkFacts, LiveFacts
from policy.transfer.findings import Verdict
from policy.transfer.models import MODELS
from policy.transfer.verdict import judge_pair
from tests.policy.transfer.engines import COMMIT, connector, script

GOOD = ("compatible", "slow")
MODEL = {"org/llama": "llama-3-70b", "org/oss": "gpt-oss-120b", "org/deepseek": "deepseek-v3"}


@dataclass(frozen=True)
class Engine:
    """An engine as it truly is; what is known of it is a part of that."""

    version: str
    build: str
    release_tag: bool
    model: str
    revision: str
    gpu: str
    connector: str
    enforces: bool
    flags: tuple[str, ...]
    layout: str | None
    rdma: bool


def option(flag: str, *values: str) -> st.SearchStrategy[tuple[str, ...]]:
    """The flag with one of the values, or left to the engine."""
    return st.sampled_from([(), *((f"--{flag}={value}",) for value in values)])


flags = st.tuples(
    option("dtype", "bfloat16", "float16", "half"),
    option("attention-backend", "FLASH_ATTN", "FLASHINFER"),
    option("kv-cache-dtype", "auto", "fp8", "fp8_e4m3", "nvfp4"),
    option("block-size", "16", "32", "24"),
    option("tensor-parallel-size", "1", "2", "4", "8", "16"),
    option("pipeline-parallel-size", "1", "2"),
    option("decode-context-parallel-size", "1", "2"),
    option("quantization", "fp8", "awq"),
    option("speculative-config", '{"method": "mtp"}', '{"method": "ngram"}'),
    st.sampled_from([(), ("--disable-hybrid-kv-cache-manager",), ("--no-disable-hybrid-kv-cache-manager",)]),
).map(lambda parts: tuple(word for part in parts for word in part))


def build_of(version: str, number: int) -> str:
    return f"engine@sha256:{version.replace('.', '') + str(number):0>64}"


engines = st.builds(
    lambda version, number, **rest: Engine(version=version, build=build_of(version, number), **rest),
    version=st.sampled_from(["0.23.0", "0.30.0", "0.33.0"]),
    number=st.integers(0, 1),
    release_tag=st.booleans(),
    model=st.sampled_from(sorted(MODEL)),
    revision=st.sampled_from([COMMIT, "d" * 40]),
    gpu=st.sampled_from(["H100", "B200"]),
    connector=st.sampled_from(["NixlConnector", "NixlPushConnector", "MooncakeConnector"]),
    enforces=st.sampled_from([True, True, True, False]),
    flags=flags,
    layout=st.sampled_from([None, None, "HND", "NHD"]),
    rdma=st.booleans(),
)


@st.composite
def pairs(draw: Any) -> tuple[Engine, Engine]:
    """Two engines that share most of what they are, so that every outcome comes up."""
    one, other = draw(engines), draw(engines)
    kept = draw(st.sets(st.sampled_from([*one.__dataclass_fields__]), max_size=2))
    changes = {name: getattr(other, name) for name in kept if name not in ("version", "build")}
    if kept & {"version", "build"}:
        changes |= {"version": other.version, "build": other.build}
    return one, replace(one, **changes)


# What may be known of an engine, one by one.
KNOWLEDGE = ("arguments", "version", "digest", "gpu", "geometry", "artifact", "link")
knowledge = st.sets(st.sampled_from(KNOWLEDGE)).map(frozenset)
ALL = frozenset(KNOWLEDGE)


def arguments_of(engine: Engine, role: str, known: frozenset[str]) -> EngineArguments:
    image = f"vllm/vllm-openai:v{engine.version}" if engine.release_tag else "registry.example/engine:latest"
    if "arguments" not in known:
        return script(f"exec start-{role} {engine}", image=image)
    extra = {} if engine.enforces else {"kv_connector_extra_config": {"enforce_handshake_compat": False}}
    transfer = connector(role, engine.connector, **extra)
    words = [engine.model, "--revision", engine.revision, "--kv-transfer-config", transfer, *engine.flags]
    env: list[dict[str, Any]] = [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "value": "10.0.0.1"}]
    if engine.layout is not None:
        env.append({"name": "VLLM_KV_CACHE_LAYOUT", "value": engine.layout})
    return read_engine(command=["vllm", "serve"], args=words, env=env, image=image)


def see(engine: Engine, role: str, known: frozenset[str]) -> EngineFacts:
    return EngineFacts(
        arguments=arguments_of(engine, role, known),
        image_digests=(engine.build,) if "digest" in known else (),
        live=LiveFacts(engine="vllm", version=engine.version) if "version" in known else LiveFacts(),
        gpu_product=engine.gpu if "gpu" in known else None,
        geometry=MODELS[MODEL[engine.model]] if "geometry" in known else None,
        model_artifact=f"{engine.model}@{engine.revision}" if "artifact" in known else None,
        link=LinkFacts(rdma=engine.rdma) if "link" in known else LinkFacts(),
    )


def judge(pair: tuple[Engine, Engine], prefill: frozenset[str], decode: frozenset[str]) -> Verdict:
    return judge_pair(see(pair[0], "prefill", prefill), see(pair[1], "decode", decode))


@settings(max_examples=250, deadline=None)
@given(pairs(), knowledge, knowledge, knowledge, knowledge)
def test_knowing_more_never_makes_an_incompatible_pair_fit(
    pair: tuple[Engine, Engine],
    prefill: frozenset[str],
    decode: frozenset[str],
    more_prefill: frozenset[str],
    more_decode: frozenset[str],
) -> None:
    little = judge(pair, prefill, decode)
    more = judge(pair, prefill | more_prefill, decode | more_decode)
    if little.outcome == "incompatible":
        assert more.outcome in ("incompatible", "dangerous"), (little.findings, more.sentence)
    if little.outcome in GOOD:
        assert more.outcome not in ("incompatible", "dangerous"), (little.rests_on, more.sentence)


@settings(max_examples=250, deadline=None)
@given(pairs(), knowledge, knowledge)
def test_a_partial_view_is_never_called_compatible(
    pair: tuple[Engine, Engine], prefill: frozenset[str], decode: frozenset[str]
) -> None:
    verdict = judge(pair, prefill, decode)
    states = {each.state for each in verdict.factors}
    if verdict.outcome in GOOD:
        assert verdict.missing == () and "unknown" not in states and verdict.rests_on
        assert {each.makes for each in verdict.findings} <= {"slow", None}
    else:
        assert not re.search(r"\bcompatible\b", verdict.sentence, re.IGNORECASE)
        assert verdict.rests_on == () and not verdict.by_identity
    if verdict.outcome == "unknown":
        assert verdict.missing
        assert all(each.fact and each.where for each in verdict.missing)


@settings(max_examples=150, deadline=None)
@given(engines, knowledge, st.booleans())
def test_an_engine_fits_itself_or_the_rule_it_breaks_is_its_own(
    engine: Engine, known: frozenset[str], apart: bool
) -> None:
    """Identical sides have no differences: only a setting that no engine accepts can stand in the way."""
    verdict = judge((engine, engine), known, known)
    for found in verdict.findings:
        assert not found.id.startswith("differs-"), found
    assert all(each.state != "different" for each in verdict.factors)


COMPARED = (
    "dtype=",
    "attention-backend=",
    "kv-cache-dtype=",
    "quantization=",
    "speculative-config=",
    "hybrid",
)


@settings(max_examples=150, deadline=None)
@given(pairs(), knowledge)
def test_factors_that_are_compared_do_not_mind_the_direction(
    pair: tuple[Engine, Engine], known: frozenset[str]
) -> None:
    alike = [
        replace(
            each,
            flags=tuple(flag for flag in each.flags if any(name in flag for name in COMPARED)),
            layout=None,
            enforces=pair[0].enforces,
            connector=pair[0].connector,
        )
        for each in pair
    ]
    there = judge((alike[0], alike[1]), known, known)
    back = judge((alike[1], alike[0]), known, known)
    assert there.outcome == back.outcome
    assert {each.id for each in there.findings} == {each.id for each in back.findings}
    states = [{each.id: each.state for each in verdict.factors} for verdict in (there, back)]
    assert states[0] == states[1]


def test_every_outcome_comes_up() -> None:
    """The strategies reach all outcomes; otherwise the properties above would prove little."""
    seen: dict[str, int] = {}

    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @given(pairs(), st.sampled_from([ALL, ALL, frozenset({"arguments"})]))
    def count(pair: tuple[Engine, Engine], known: frozenset[str]) -> None:
        outcome = judge(pair, known, known).outcome
        seen[outcome] = seen.get(outcome, 0) + 1

    count()
    assert set(seen) == {"incompatible", "dangerous", "unknown", "slow", "compatible"}, seen
