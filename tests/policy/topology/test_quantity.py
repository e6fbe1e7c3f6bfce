"""Quantities: exact values, and no guess about what is not one."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.topology.quantity import BadQuantity, count, in_thousandths, in_units, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("8", 8),
        (8, 8),
        ("+3", 3),
        ("-3", -3),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("250m", Fraction(1, 4)),
        ("100u", Fraction(1, 10_000)),
        ("7n", Fraction(7, 10**9)),
        ("1k", 1000),
        ("2M", 2 * 10**6),
        ("2G", 2 * 10**9),
        ("3T", 3 * 10**12),
        ("3P", 3 * 10**15),
        ("12E", 12 * 10**18),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("1Mi", 2**20),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e-3", Fraction(12, 1000)),
        ("0.1", Fraction(1, 10)),
    ],
)
def test_exact_values(text: str | int, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1KI", "1K", "Gi", "1.2.3", "1e", "e3", "0x10", "1_000", "１", "1e99", "--1", "1Gi5"],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadQuantity):
        parse_quantity(text)


@given(st.integers(0, 10**12), st.sampled_from(["n", "u", "m", "", "k", "M", "Ki", "Mi", "Gi"]))
def test_rounds_up_never_down(number: int, suffix: str) -> None:
    exact = parse_quantity(f"{number}{suffix}")
    assert 0 <= in_units(f"{number}{suffix}") - exact < 1
    assert 0 <= in_thousandths(f"{number}{suffix}") - exact * 1000 < 1


def test_units_of_the_scheduler() -> None:
    assert count("cpu", "1500m") == 1500
    assert count("cpu", "100u") == 1
    assert count("memory", "1Gi") == 2**30
    assert count("nvidia.com/gpu", "8") == 8
