"""A broken engine may answer anything: what is kept can be stored and judged, and a verdict says what is lacking."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.paths import judging, probing
from controlplane.paths.asks import answer_of, kept_of, result_of
from controlplane.paths.models import ProbeSeries
from controlplane.paths.pool_settings import read_settings
from controlplane.paths.requests import Reply, _document
from controlplane.paths.services import judge_series, store_progress
from policy.parity import disagreement
from policy.probes import fixed_prompts
from tests.controlplane.operations.toy import make_cluster
from tests.controlplane.paths.golden_world import OLD, SETTINGS, make_pool, view

Json = dict[str, Any]
POOL = view()
ASK: Json = {"number": 0, "revision": OLD, "prompt": "p", "salt": "s", "tokens": 48, "pod": ""}
HEADERS = {"x-disagg-revision": OLD}
USUAL: Json = {"completion_tokens": 48, "prompt_tokens": 60, "prompt_tokens_details": {"cached_tokens": 60}}

texts = st.text(st.characters(codec=None), max_size=5) | st.sampled_from(["\x00", "\ud83d", "NaN"])
numbers = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 1e308, -1e308, True])
anything = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return usual | anything


said = st.fixed_dictionaries(
    {},
    optional={
        "tokens": mostly(st.lists(mostly(texts), max_size=4)),
        "token_logprobs": mostly(st.lists(mostly(numbers), max_size=4)),
        "top_logprobs": mostly(
            st.lists(mostly(st.dictionaries(texts, mostly(numbers), max_size=3)), max_size=4)
        ),
    },
)
choices = st.fixed_dictionaries({}, optional={"logprobs": mostly(said), "finish_reason": mostly(texts)})
usages = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": anything,
        "completion_tokens": anything,
        "prompt_tokens_details": mostly(st.fixed_dictionaries({"cached_tokens": anything})),
    },
)
documents = st.fixed_dictionaries(
    {"choices": mostly(st.lists(mostly(choices), max_size=2)), "usage": mostly(usages)}
)


@given(documents)
def test_whatever_an_engine_answers_can_be_stored_and_compared(document: Json) -> None:
    kept = kept_of(ASK, Reply(200, HEADERS, document), POOL)
    stored = json.dumps(kept, allow_nan=False)
    kept_text = json.dumps(kept, ensure_ascii=False)
    kept_text.encode()  # lone surrogates would raise
    assert "\\u0000" not in kept_text
    assert json.loads(stored) == kept
    result_of(ASK, kept)
    for counted in ("prompt_tokens", "cached_tokens", "output_tokens"):
        assert kept[counted] is None or (type(kept[counted]) is int and kept[counted] >= 0)
    answer = answer_of(ASK, kept, {})
    if answer is not None:
        assert answer.tokens and all(map(math.isfinite, answer.logprobs))
        assert disagreement(answer, answer) == 0.0 or not answer.cut
        assert answer.mean_logprob is None or math.isfinite(answer.mean_logprob)


@given(st.lists(said, min_size=2, max_size=2), st.booleans())
def test_what_an_older_version_kept_as_it_came_is_compared_as_well(found: list[Json], cut: bool) -> None:
    answers = []
    for each in found:
        kept = {
            "status": 200,
            "stamped": OLD,
            "decode": "",
            "finish": "length" if cut else "stop",
            "cached_tokens": 1,
            "tokens": each.get("tokens"),
            "logprobs": each.get("token_logprobs") or [],
            "alternatives": each.get("top_logprobs") or [],
        }
        answers.append(answer_of(ASK, kept, {}))
    if answers[0] is not None and answers[1] is not None:
        assert 0.0 <= disagreement(answers[0], answers[1]) <= 1.0


def test_a_good_answer_is_kept_as_it_came() -> None:
    logprobs = {
        "tokens": ["a", 7],
        "token_logprobs": [-0.5, None],
        "top_logprobs": [{"a": -0.5, "b": -9999.0}, None],
    }
    choice = {"logprobs": logprobs, "finish_reason": "length"}
    kept = kept_of(ASK, Reply(200, HEADERS, {"choices": [choice], "usage": USUAL}), POOL)
    assert kept["tokens"] == ["a", 7] and kept["logprobs"] == [-0.5, None]
    assert kept["alternatives"] == [{"a": -0.5, "b": -9999.0}, {}]
    assert (kept["cached_tokens"], kept["output_tokens"], kept["finish"]) == (60, 48, "length")


def test_an_answer_that_is_nested_without_end_is_no_answer() -> None:
    assert _document(b"[" * 200_000) == {}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": ["\x00", "\ud83d"] * 24},
        {"token_logprobs": [math.nan, math.inf] * 24},
        {"token_logprobs": ["x"] * 48},
        {"top_logprobs": [["a"]] * 48},
        {"tokens": [["a"]] * 48},
    ],
)
def test_a_series_of_a_corrupting_engine_has_a_verdict(wrong: Json) -> None:
    pool = make_pool(make_cluster(watcher_fence=5))
    series = ProbeSeries.objects.create(
        pool=pool, kind="parity", subject_kind="person", revision=OLD, created_at=pool.observed_at
    )
    settings = read_settings({**SETTINGS, "reference": "direct"})
    plan = probing.make_plan(series, view(), settings, list(fixed_prompts()))
    good = {"tokens": ["a"] * 48, "token_logprobs": [-0.1] * 48, "top_logprobs": [{"b": -4.0}] * 48}

    def reply(ask: Json) -> Reply:
        logprobs = good if ask["pod"] else {**good, **wrong}
        choice = {"logprobs": logprobs, "finish_reason": "length"}
        return Reply(200, HEADERS, {"choices": [choice], "usage": USUAL})

    results = [kept_of(ask, reply(ask), view()) for ask in plan["asks"]]
    assert store_progress(series_id=series.pk, plan=plan, results=results, done_before=0)
    verdict = judging.judge(series, plan, results, view(), settings, after={})
    judge_series(series_id=series.pk, verdict=verdict)
    series.refresh_from_db()
    assert series.verdict["sentence"]
    same = wrong.keys() <= {
        "token_logprobs",
        "top_logprobs",
    }  # the text is the right one: less is known of it
    assert series.verdict["verdict"] in (("ok",) if same else ("red", "not-evaluable")), series.verdict
