"""Regular expressions that mean in Python what they mean in Prometheus, and no others."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.demo.metrics.patterns import BadPattern, compile_pattern, expand


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a|b", "b", True),
        ("a|b", "ab", False),
        ("chat\\-epp(-[a-z0-9]+){1,2}", "chat-epp-7d9f-abcde", True),
        ("(.*?)(?:-rank-[0-9]+)?", "p0-rank-1", True),
        (".+", "a\nb", True),
        ("", "", True),
        ("^a$", "a", True),
        ("\\d", "٣", False),
        ("[^]a]", "b", True),
        ("a{2}", "aa", True),
        ("a{x}", "a{x}", True),
    ],
)
def test_what_fits(pattern: str, text: str, fits: bool) -> None:
    assert (compile_pattern(pattern).fullmatch(text) is not None) is fits


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "(?i)a",
            "(?=a)",
            "(?<n>a)",
            "(a)\\1",
            "\\pL",
            "\\z",
            "\\Qa\\E",
            "[[:alpha:]]",
            "[a&&b]",
            "\\s",
            "\\x41",
        ),
        *(
            "a**",
            "a*+",
            "a++",
            "*a",
            "(|*)",
            "a{,3}",
            "a{1001}",
            "a$b",
            "a^",
            "[a",
            "(a",
            "a)",
            "\\",
            "[b-a]",
            "\\é",
        ),
    ],
)
def test_what_is_read_differently_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        compile_pattern(pattern)


@given(value=st.text())
def test_an_escaped_name_fits_itself_alone(value: str) -> None:
    pattern = compile_pattern(re.escape(value)) if "\0" not in value else None
    assert pattern is None or pattern.fullmatch(value)


def test_templates() -> None:
    found = compile_pattern("(?P<name>a+)(b)?").fullmatch("aa")
    assert found is not None
    assert expand("$1-${name}-$name-$2-$3-$1x-$$1", found) == "aa-aa-aa----$1"
