"""Canonical JSON: one meaning, one text; another meaning, another digest; secrets covered, never shown."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.canonical import LAST_APPLIED, NotCanonical, canonical_json, digest, redact

SALT = b"0123456789abcdef"
leaves = st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=8)
documents = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=6), inner, max_size=4)
    ),
    max_leaves=20,
)


def shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        return {key: shuffled(item, rng) for key, item in items}
    if isinstance(value, list):
        return [shuffled(item, rng) for item in value]
    return value


def same(a: Any, b: Any) -> bool:
    """Equality that keeps True apart from 1, as JSON does."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def test_bytes_are_exact() -> None:
    value = {"b": [1, True, None, "é"], "a": {"z": "", "y": -3}}
    assert canonical_json(value) == '{"a":{"y":-3,"z":""},"b":[1,true,null,"é"]}'.encode()
    assert digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@given(documents, st.randoms(use_true_random=False))
def test_key_order_is_irrelevant(value: Any, rng: random.Random) -> None:
    assert canonical_json(shuffled(value, rng)) == canonical_json(value)


@given(documents)
def test_reads_back_as_the_same_document(value: Any) -> None:
    assert same(json.loads(canonical_json(value)), value)


@given(documents, documents)
def test_digest_is_equal_exactly_for_equal_documents(a: Any, b: Any) -> None:
    assert (digest(a) == digest(b)) == same(a, b)


@given(st.lists(st.integers(), min_size=2, max_size=6, unique=True))
def test_list_order_is_relevant(items: list[int]) -> None:
    assert digest({"roles": items}) != digest({"roles": items[::-1]})


def test_tuples_are_lists_and_whole_floats_are_integers() -> None:
    assert digest({"a": (1, (2,))}) == digest({"a": [1, [2]]})
    assert digest({"a": 3.0}) == digest({"a": 3})
    assert canonical_json(-0.0) == b"0"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [0.5]}, "$.a[0]"),
        ({"a": float("nan")}, "$.a"),
        ({"a": float("inf")}, "$.a"),
        ({"a": 1e300}, "$.a"),
        ({"a": {"b": {1, 2}}}, "$.a.b"),
        ({"a": b"x"}, "$.a"),
        ({"a": {1: "x"}}, "$.a"),
        ({"a": "\ud800"}, "$.a"),
        ({"a": object()}, "$.a"),
    ],
)
def test_what_has_no_single_form_is_refused_by_path(value: Any, path: str) -> None:
    with pytest.raises(NotCanonical) as caught:
        canonical_json(value)
    assert caught.value.path == path


def test_a_document_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    with pytest.raises(NotCanonical):
        digest(value)


def pod(env: str, header: str, secret: str) -> dict[str, Any]:
    return {
        "kind": "List",
        "items": [
            {
                "kind": "Secret",
                "metadata": {"name": "s"},
                "data": {"token": secret},
                "stringData": {"t": secret},
            },
            {
                "kind": "Pod",
                "metadata": {"annotations": {LAST_APPLIED: f"{env}{header}{secret}"}},
                "spec": {
                    "containers": [
                        {
                            "name": "engine",
                            "args": ["--model", "m"],
                            "env": [
                                {"name": "KEY", "value": env},
                                {"name": "REF", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
                            ],
                            "readinessProbe": {
                                "httpGet": {"httpHeaders": [{"name": "Auth", "value": header}]}
                            },
                        }
                    ]
                },
            },
            {
                "probe": {"headers": {"Authorization": header}},
                "kind": "ConfigMap",
                "data": {"config": "shown"},
            },
        ],
    }


secrets = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=4, max_size=12).map(
    "~{}".format
)


@given(secrets, secrets, secrets)
def test_secrets_never_show(env: str, header: str, secret: str) -> None:
    text = canonical_json(redact(pod(env, header, secret), salt=SALT)).decode()
    for value in (env, header, secret):
        assert value not in text
    for kept in ("--model", '"config":"shown"', "secretKeyRef", '"KEY"', '"Authorization"'):
        assert kept in text


@given(secrets, secrets)
def test_the_digest_covers_every_secret(old: str, new: str) -> None:
    base = digest(redact(pod(old, old, old), salt=SALT))
    for changed in (pod(new, old, old), pod(old, new, old), pod(old, old, new)):
        assert (digest(redact(changed, salt=SALT)) == base) == (old == new)
    assert digest(redact(pod(old, old, old), salt=b"another salt 123")) != base


def test_equal_values_under_two_names_do_not_look_equal() -> None:
    shown = redact({"env": [{"name": "A", "value": "x"}, {"name": "B", "value": "x"}]}, salt=SALT)
    text = canonical_json(shown).decode()
    assert len(set(re.findall("sha256:([0-9a-f]{64})", text))) == 2


def test_a_short_salt_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        redact({}, salt=b"short")


def test_a_label_called_env_is_not_a_secret() -> None:
    assert redact({"labels": {"env": "production"}}, salt=SALT) == {"labels": {"env": "production"}}
