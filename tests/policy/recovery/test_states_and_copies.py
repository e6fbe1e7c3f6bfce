"""States of a combination, its pieces in a cluster, image IDs, and what pods mention."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.recovery.bits import judge_bits
from policy.recovery.copies import BrokenCopy, join_copy, piece_name, read_index, split_copy
from policy.recovery.mentions import find_mentions
from policy.recovery.states import Event, State, is_trusted, transition
from policy.rollout.refusal import Refusal

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(st.lists(st.sampled_from(list(Event)), max_size=6))
def test_a_revoked_combination_stays_revoked(events: list[Event]) -> None:
    state = State.CANDIDATE
    for event in events:
        found = transition(state, event)
        if state is State.REVOKED:
            assert isinstance(found, Refusal) and found.code == "combination-revoked"
        state = state if isinstance(found, Refusal) else found
        assert is_trusted(state) == (state is State.VERIFIED)
    assert (state is State.REVOKED) == (Event.REVOKE in events)


def test_verified_once_is_enough() -> None:
    assert transition("candidate", "verify") is State.VERIFIED
    refused = transition("verified", "verify")
    assert isinstance(refused, Refusal) and refused.code == "already-verified"


@given(st.dictionaries(TEXT, TEXT, max_size=8), st.integers(4, 50))
def test_pieces_give_the_document_again(document: dict[str, str], limit: int) -> None:
    pieces = split_copy(document, number=3, about={"state": "verified"}, limit=limit)
    assert all(len(each["piece"].encode()) <= limit for each in pieces)
    assert join_copy(pieces) == document
    assert read_index(pieces[0])["state"] == "verified"


def test_pieces_of_two_writings_are_no_copy() -> None:
    first, second = (split_copy({"text": letter * 20}, number=1, about={}, limit=10) for letter in ("a", "b"))
    for broken in ([first[0], *second[1:]], first[:-1], [{"piece": "{}"}], [{"index": "[]", "piece": ""}]):
        with pytest.raises(BrokenCopy):
            join_copy(broken)


def test_the_last_two_have_places_of_their_own() -> None:
    names = [piece_name("serving", "chat", number, 0) for number in range(1, 5)]
    assert names[0] != names[1] and names[:2] == names[2:]
    assert piece_name("serving", "chat", 1, 2) == "combination-serving.chat-1.2"


def images(*ids: str) -> dict[str, dict[str, dict[str, object]]]:
    """One container with these image IDs."""
    return {"decode": {"engine": {"image": "engine:v1", "image_ids": list(ids)}}}


@pytest.mark.parametrize(
    ("then", "now", "verdict"),
    [
        (images("sha256:a"), images("sha256:a"), "same-bits"),
        (images("sha256:a"), images("sha256:b"), "same-template"),
        (images("sha256:a"), images("sha256:b", "sha256:c"), "same-template"),
        (images("sha256:a"), images("sha256:a", "sha256:b"), "cannot-tell"),
        (images("sha256:a"), images(), "cannot-tell"),
        (images("sha256:a"), images(""), "cannot-tell"),
        ({}, images("sha256:a"), "cannot-tell"),
        ({}, {}, "cannot-tell"),
    ],
)
def test_a_moved_tag_is_the_same_template_and_not_the_same_bits(
    then: dict[str, object], now: dict[str, object], verdict: str
) -> None:
    found = judge_bits(then, now, same_template=True)  # type: ignore[arg-type]
    assert found.verdict == verdict
    assert bool(found.what) == (verdict != "same-bits")
    assert judge_bits(then, now, same_template=False).verdict == "differs"  # type: ignore[arg-type]


def test_everything_that_pods_take_from_is_found() -> None:
    pod = {
        "volumes": [
            {"name": "a", "configMap": {"name": "mounted"}},
            {"name": "b", "secret": {"secretName": "mounted-secret"}},
            {"name": "c", "projected": {"sources": [{"configMap": {"name": "projected"}}, {"secret": {"name": "s2"}}]}},
            {"name": "d", "emptyDir": {}},
        ],
        "imagePullSecrets": [{"name": "pull"}],
        "initContainers": [
            {"name": "i", "envFrom": [{"configMapRef": {"name": "start"}}, {"secretRef": {"name": "s3"}}]}
        ],
        "containers": [
            {
                "name": "engine",
                "env": [
                    {"name": "A", "value": "plain"},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "one-key", "key": "k"}}},
                    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s4", "key": "k"}}},
                ],
            }
        ],
    }  # fmt: skip
    roles = [
        {"name": "prefill", "spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": pod}}}},
        {"name": "decode", "spec": {"leaderWorkerTemplate": {"leaderTemplate": {"spec": pod}}}},
    ]
    found = find_mentions(roles)
    assert set(found.config_maps) == {"mounted", "projected", "start", "one-key"}
    assert set(found.secrets) == {"mounted-secret", "s2", "s3", "s4", "pull"}
    assert set(found.config_maps.values()) == {("prefill", "decode")}
