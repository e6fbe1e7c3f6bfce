"""What signs of a bad transfer mean: the published table, and nothing that was not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.transfer.log_signs import LOG_FRAGMENTS, match_log
from policy.transfer.signatures import (
    BYTES_SUM,
    DEFERRED,
    DESCRIPTORS_SUM,
    ERRORS,
    EXPIRED,
    EXTERNAL,
    FAILED,
    LATE_NOTICES,
    LOCAL_COMPUTE,
    POST_SUM,
    REQUESTS,
    RESTARTS,
    SITUATIONS,
    WAITING_TO_START,
    XFER_COUNT,
    XFER_SUM,
    Signs,
    explain,
)

HEALTHY_DECODE = {
    XFER_COUNT: 100,
    XFER_SUM: 1.0,
    POST_SUM: 0.1,
    BYTES_SUM: 20e9,
    DESCRIPTORS_SUM: 100 * 2000,
    FAILED: 0,
    ERRORS: 0,
    REQUESTS: 100,
    LOCAL_COMPUTE: 0,
    EXTERNAL: 100 * 4096,
    DEFERRED: 0,
    WAITING_TO_START: 0,
    RESTARTS: 0,
}
HEALTHY_PREFILL = {EXPIRED: 0, LATE_NOTICES: 0, REQUESTS: 100, RESTARTS: 0}
NO_TRANSFERS = {XFER_COUNT: 0, XFER_SUM: 0, POST_SUM: 0, BYTES_SUM: 0, DESCRIPTORS_SUM: 0, EXTERNAL: 0}
HEALTHY = Signs(HEALTHY_PREFILL, HEALTHY_DECODE, version="0.30.0", decode_only_share=0.0)


def signs(
    decode: dict[str, float] | None = None, prefill: dict[str, float] | None = None, **rest: Any
) -> Signs:
    """A healthy path with some signs changed."""
    changed = replace(
        HEALTHY, decode=HEALTHY_DECODE | (decode or {}), prefill=HEALTHY_PREFILL | (prefill or {})
    )
    return replace(changed, **rest)


def ids(given: Signs) -> list[str]:
    return [each.id for each in explain(given)]


def test_a_healthy_path_has_no_situation() -> None:
    assert explain(HEALTHY) == ()


def test_a_mix_of_weights_shows_in_no_sign() -> None:
    """Everything is green then; only the specification shows it, so no situation may claim to see it."""
    assert not any("weights" in each.id or "revision-mix" in each.id for each in SITUATIONS)


REFUSED = {FAILED: 90, ERRORS: 90} | NO_TRANSFERS


def test_an_incompatible_pair_that_fails() -> None:
    assert ids(signs(REFUSED, {EXPIRED: 90})) == ["pair-refused"]
    # Whether prefill is out of reach or refused cannot be told while no lease has expired: both are said.
    assert ids(signs(REFUSED)) == ["pair-refused", "prefill-unreachable"]
    faults = {each.fault for each in explain(signs(REFUSED))}
    assert faults == {"unsupported-pair", "faulty-part"}


def test_an_incompatible_pair_in_a_release_that_does_not_count_it() -> None:
    silent = signs(REFUSED | {FAILED: 0}, {EXPIRED: 90}, version="0.20.0")
    assert ids(silent) == ["pair-refused"]
    assert ids(replace(silent, version="0.30.0")) == []


def test_an_incompatible_pair_that_recomputes() -> None:
    hidden = signs({FAILED: 90, LOCAL_COMPUTE: 100 * 4096} | NO_TRANSFERS, {EXPIRED: 90})
    assert ids(hidden) == ["pair-refused-recomputed"]


def test_a_stale_agent_fails_on_some_decode_pods_only() -> None:
    pods = ({FAILED: 40.0}, {FAILED: 0.0}, {FAILED: 0.0})
    found = explain(signs({FAILED: 40, ERRORS: 0}, {RESTARTS: 1}, decode_pods=pods))
    assert [each.id for each in found] == ["stale-agent"]
    assert found[0].fault == "faulty-part"
    assert "a prefill engine started anew" in found[0].seen
    everywhere = ({FAILED: 40.0}, {FAILED: 40.0})
    assert ids(signs({FAILED: 80}, decode_pods=everywhere)) == []


def test_a_lease_that_is_too_short() -> None:
    short = signs({DEFERRED: 12, WAITING_TO_START: 5}, {EXPIRED: 20, LATE_NOTICES: 3})
    found = explain(short)
    assert [each.id for each in found] == ["lease-too-short"]
    assert len(found[0].seen) == 5 and found[0].unseen == ()


def test_a_slow_transport() -> None:
    assert ids(signs({BYTES_SUM: 0.5e9})) == ["slow-transport"]
    assert ids(signs({BYTES_SUM: 7.4e9})) == []


def test_fragmented_blocks() -> None:
    assert ids(signs({POST_SUM: 0.57, DESCRIPTORS_SUM: 100 * 112_000})) == ["fragmented-blocks"]


def test_a_router_that_does_not_disaggregate() -> None:
    alone = signs({LOCAL_COMPUTE: 100 * 4096} | NO_TRANSFERS, {REQUESTS: 0}, decode_only_share=1.0)
    assert ids(alone) == ["not-disaggregating"]
    assert ids(replace(alone, decode_only_share=0.1)) == []
    assert ids(replace(alone, decode_only_share=None)) == ["not-disaggregating"]


def test_unseen_signs_are_named() -> None:
    decode = {LOCAL_COMPUTE: 4096.0, **{name: float(value) for name, value in NO_TRANSFERS.items()}}
    found = explain(Signs(decode=decode))
    assert [each.id for each in found] == ["not-disaggregating"]
    assert "the router sends to decode alone" in found[0].unseen


@pytest.mark.parametrize(
    ("line", "id"),
    [
        ("ERROR NIXL compatibility hash mismatch. Local: 7f Remote: 80", "pair-refused"),
        ("Remote NIXL agent engine ID mismatch: expected a, got b", "stale-agent"),
        ("NIXL transfer failure: handshake_setup_failed | Context: {}", "prefill-unreachable"),
        ("Potentially invalid KV blocks for request r", "lease-too-short"),
        ("Local block size 16 is not divisible by remote block size 32", "block-sizes"),
        ("Page size mismatch: 64 vs 16", "sglang-refused"),
    ],
)
def test_a_log_line_is_enough(line: str, id: str) -> None:
    found = explain(Signs(log_lines=(line,)))
    assert [each.id for each in found] == [id]
    assert found[0].seen[0].startswith('log: "')
    assert match_log(line)


def test_fragments_name_situations_that_exist() -> None:
    known = {each.id for each in SITUATIONS}
    for fragment in LOG_FRAGMENTS:
        assert set(fragment.situations) <= known, fragment.text
        assert match_log(f"time level {fragment.text} context")
    types = [each for each in LOG_FRAGMENTS if each.text.startswith("NIXL transfer failure: ")]
    assert len(types) == 10


def test_every_situation_has_a_next_action_and_one_kind_of_fault() -> None:
    assert len({each.id for each in SITUATIONS}) == len(SITUATIONS)
    assert all(each.next_action and each.fault for each in SITUATIONS)


NUMBERS = st.one_of(st.just(0.0), st.floats(0, 1e12))
DECODE = st.dictionaries(st.sampled_from(sorted(HEALTHY_DECODE)), NUMBERS)
PREFILL = st.dictionaries(st.sampled_from(sorted(HEALTHY_PREFILL)), NUMBERS)
PODS = st.lists(st.dictionaries(st.just(FAILED), NUMBERS), max_size=3).map(tuple)


@given(
    DECODE, PREFILL, PODS, st.sampled_from([None, "0.20.0", "0.30.0"]), st.one_of(st.none(), st.floats(0, 1))
)
def test_only_what_was_seen_is_said(
    decode: dict[str, float], prefill: dict[str, float], pods: Any, version: str | None, share: float | None
) -> None:
    given = Signs(prefill, decode, pods, version, share)
    for found in explain(given):
        assert found.seen
        situation = next(each for each in SITUATIONS if each.id == found.id)
        for sign in situation.signs:
            state = sign.holds(given)
            assert state is not False and (state is True or not sign.needed)
            assert sign.label in (found.seen if state else found.unseen)


@given(st.sampled_from(["0.20.0", "0.30.0", None]))
def test_nothing_seen_means_nothing_said(version: str | None) -> None:
    assert explain(Signs(version=version)) == ()
