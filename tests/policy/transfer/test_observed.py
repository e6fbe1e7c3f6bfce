"""Measured KV bytes and times against what the model and the link let one expect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.transfer.arguments import EngineArguments, read_container
from policy.transfer.links import LINKS
from policy.transfer.named_models import model_named
from policy.transfer.observed import observe_bytes, observe_time

PER_TOKEN_70B = 2 * 80 * 8 * 128 * 2


def decode(*args: str, model: str = "meta-llama/Llama-3.1-70B-Instruct") -> EngineArguments:
    command = ["vllm", "serve", model, *args]
    return read_container({"name": "vllm", "image": "vllm/vllm-openai:v0.30.0", "command": command})


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", "Llama-3(.1)-70B"),
        ("/models/Llama-3.3-70B-Instruct/", "Llama-3(.1)-70B"),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-V3/R1"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", None),
        ("somebody/Llama-3.1-70B-pruned", None),
        ("", None),
    ],
)
def test_only_a_whole_published_name_is_known(name: str, known: str | None) -> None:
    found = model_named(name)
    assert (found.name if found else None) == known


@pytest.mark.parametrize(
    ("measured", "args", "state"),
    [
        (PER_TOKEN_70B, (), "as-expected"),
        (PER_TOKEN_70B / 2, ("--kv-cache-dtype", "fp8"), "as-expected"),
        (PER_TOKEN_70B, ("--kv-cache-dtype", "fp8"), "wide-dtype"),
        (PER_TOKEN_70B * 2, ("--tensor-parallel-size", "16"), "as-expected"),
        (PER_TOKEN_70B * 5, (), "off"),
    ],
)
def test_bytes_of_a_known_model_are_judged(measured: float, args: tuple[str, ...], state: str) -> None:
    seen = observe_bytes(measured, decode(*args))
    assert seen.state == state and seen.measured == measured and not seen.missing


def test_what_is_missing_is_named_and_nothing_is_guessed() -> None:
    assert observe_bytes(None, decode()).state == "not-measured"
    assert observe_bytes(5.0, None).missing == ("how the decode engine is started",)
    other = observe_bytes(5.0, decode(model="acme/own-model"))
    assert (other.state, other.expected, other.missing) == (
        "unknown",
        None,
        ("the geometry of acme/own-model",),
    )
    odd = observe_bytes(5.0, decode("--kv-cache-dtype", "int3"))
    assert odd.state == "unknown" and "int3" in odd.sentence


def test_time_needs_the_link_and_the_size() -> None:
    assert observe_time(None, size=1e9, link="ib-ndr").state == "not-measured"
    seen = observe_time(0.02, size=1e9, link="")
    assert (seen.state, seen.rate) == ("unknown", 5e10) and "link of the pool" in seen.sentence
    assert observe_time(0.02, size=None, link="ib-ndr").missing == ("bytes per transfer",)


@given(st.floats(1e-6, 100.0), st.floats(1e3, 1e12), st.sampled_from(sorted(LINKS)), st.integers(1, 8))
def test_the_range_decides_and_never_contradicts_itself(
    measured: float, size: float, link: str, nics: int
) -> None:
    seen = observe_time(measured, size=size, link=link, nics=nics)
    assert seen.floor is not None and seen.low is not None and seen.high is not None
    assert seen.floor <= seen.low <= seen.high
    expected = (
        "faster-than-the-link" if measured < seen.floor else "slow" if measured > seen.high else "as-expected"
    )
    assert seen.state == expected
