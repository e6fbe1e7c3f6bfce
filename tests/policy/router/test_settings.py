"""What a router's configuration says about revisions and prefill, and label selectors as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.demo.router.config import example_config
from policy.router.settings import labels_demanded, read_settings, scope_matches

SET = "disaggregatedset.x-k8s.io/name"


def config(*plugins: str) -> str:
    return "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n" + "\n".join(plugins)


def test_the_configuration_that_was_run_keeps_requests_inside_one_revision() -> None:
    found = read_settings(example_config("chat"))
    assert found.readable and not found.problems
    assert found.screener is not None and found.screener.draws
    assert (found.screener.mode, set(found.screener.required_roles)) == ("max-role", {"prefill", "decode"})
    assert found.strict_header == "x-disagg-revision"
    assert found.scope == f"{SET}=chat"
    assert found.decider == "always"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("[1, 2]", "no mapping"),
        ("plugins: [", "no YAML"),
    ],
)
def test_what_cannot_be_read_is_said_and_never_raised(text: str, problem: str) -> None:
    found = read_settings(text)
    assert not found.readable and problem in found.problems[0]


@given(st.text(max_size=200))
def test_no_text_makes_it_raise(text: str) -> None:
    read_settings(text)
    scope_matches(text, {"a": "b"})


def test_a_screener_with_a_mode_that_nobody_knows_is_none() -> None:
    found = read_settings(
        config("- {type: disaggregatedset-rollout-screener, parameters: {revisionGating: {mode: best}}}")
    )
    assert found.screener is None and "best" in found.problems[0]


@pytest.mark.parametrize(
    ("plugins", "decider"),
    [
        (["- {type: single-profile-handler}"], "never"),
        (
            [
                "- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16}}",
                "- {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}",
            ],
            "by-prompt",
        ),
        (
            [
                "- {name: d, type: prefix-based-pd-decider}",
                "- {type: disagg-profile-handler, parameters: {deciders: {prefill: d}}}",
            ],
            "never",
        ),
        (["- {type: disagg-profile-handler, parameters: {deciders: {prefill: gone}}}"], "unknown"),
        (["- {type: disagg-profile-handler, parameters: {stageOrder: prefill-first}}"], "always"),
    ],
)
def test_when_a_prefill_pod_is_used(plugins: list[str], decider: str) -> None:
    assert read_settings(config(*plugins)).decider == decider


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("a=b", True),
        ("a==b,c", True),
        ("a!=b", False),
        ("a in (x, b),c notin (z)", True),
        ("!d", True),
        ("!a", False),
        ("d", False),
        ("a in (", None),
    ],
)
def test_selectors_as_text(selector: str, matches: bool | None) -> None:
    assert scope_matches(selector, {"a": "b", "c": "y"}) is matches


WORDS = st.sampled_from(["a", "b", "c", "=", "==", "!=", "!", " ", ",", "in (a, b)", "notin (c)", "(", ")"])


@given(
    st.lists(WORDS, max_size=7).map("".join), st.dictionaries(st.sampled_from("abc"), st.sampled_from("abc"))
)
def test_what_a_selector_demands_is_on_whatever_it_matches(selector: str, labels: dict[str, str]) -> None:
    if scope_matches(selector, labels):
        assert labels_demanded(selector).items() <= labels.items()


def test_only_exact_values_are_demanded() -> None:
    assert labels_demanded("a=b,c==d,e!=f,g in (h),!i") == {"a": "b", "c": "d"}


SCREENER = "- {type: disaggregatedset-rollout-screener, parameters: {revisionGating: {mode: sum}, scope: %s}}"


@pytest.mark.parametrize(
    "scope", ["{labelSelector: 'a in ('}", "{labelSelector: 'a=b,,c'}", "{labelSelector: 'a=b c'}", "a=b"]
)
def test_a_scope_that_cannot_be_read_is_a_problem(scope: str) -> None:
    found = read_settings(config(SCREENER % scope))
    assert any("scope" in problem for problem in found.problems)


def test_a_scope_that_can_be_read_is_none() -> None:
    assert read_settings(config(SCREENER % "{labelSelector: 'a = b, c in (d, e)'}")).problems == ()


@pytest.mark.parametrize(
    ("plugins", "handler", "problem"),
    [
        ([], "", ""),
        (["- {type: header-profile-handler}"], "header-profile-handler", ""),
        (["- {type: disagg-profile-handler}"], "disagg-profile-handler", ""),
        (
            ["- {type: header-profile-handler}", "- {type: disagg-profile-handler}"],
            "header-profile-handler",
            "2 profile handlers",
        ),
    ],
)
def test_the_profile_handler_is_named(plugins: list[str], handler: str, problem: str) -> None:
    found = read_settings(config(*plugins))
    assert found.handler == handler and problem in "".join(found.problems)


@pytest.mark.parametrize(
    "text",
    [
        "plugins: 3",
        config(
            "- {type: disaggregatedset-rollout-screener, parameters: {scope: x, revisionGating: {mode: sum}}}"
        ),
        config(
            "- {type: disaggregatedset-rollout-screener, parameters: {revisionGating: {mode: sum, requireRoles: 7}}}"
        ),
        config("- {type: disagg-profile-handler, parameters: {deciders: prefill}}"),
        config(f"- {{type: 0x{'f' * 5000}}}"),
    ],
)
def test_values_of_another_shape_raise_nothing(text: str) -> None:
    assert read_settings(text).readable


@pytest.mark.parametrize("text", ["a: 2001-99-99", "a: !!timestamp x", "a: 0x_", "[" * 100_000])
def test_values_that_yaml_cannot_make_are_said(text: str) -> None:
    found = read_settings(text)
    assert not found.readable and "no YAML" in found.problems[0]


@pytest.mark.parametrize("place", ["type: %s", "type: disaggregatedset-rollout-screener, parameters: %s"])
def test_values_that_grow_when_written_out_are_not_written_out(place: str) -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 40)}]" for n in range(1, 7)]
    shape = (
        "*l6"
        if "%s" in place and "parameters" not in place
        else (
            "{scope: {labelSelector: *l6}, headerSelectors: [{mode: strict, labelKey: *l6, headerName: *l6}],"
            " revisionGating: {mode: sum, requireRoles: {values: [*l6]}}}"
        )
    )
    bomb = "l0: &l0 [a]\n" + "\n".join(levels) + "\nplugins: [{" + place % shape + "}]"
    assert read_settings(bomb).readable
