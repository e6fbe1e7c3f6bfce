"""The house rules on size and names that no stock linter checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOUSES = ("policy", "controlplane", "workers", "deploy", "tests")
MOST_LINES = 400
MOST_FUNCTION_LINES = 40
NO_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "misc"}


def modules(*houses: str) -> list[Path]:
    """Every module of these houses, migrations (generated) left out."""
    found = [path for house in houses for path in sorted((ROOT / house).rglob("*.py"))]
    return [path for path in found if "migrations" not in path.parts]


def long_functions(path: Path) -> Iterator[str]:
    """Functions whose body has more than 40 lines, docstring and signature not counted."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.end_lineno is None:
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        lines = node.end_lineno - body[0].lineno + 1 if body else 0
        if lines > MOST_FUNCTION_LINES:
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines"


def test_the_houses_are_found() -> None:
    assert len(modules(*HOUSES)) > 40


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules(*HOUSES)}
    too_long = {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > MOST_LINES}
    assert not too_long, f"split by decision: {too_long}"


def test_no_function_is_longer_than_40_lines() -> None:
    too_long = [
        line
        for path in modules("policy", "controlplane", "workers", "deploy")
        for line in long_functions(path)
    ]
    assert not too_long, "\n".join(too_long)


@pytest.mark.parametrize("house", HOUSES)
def test_no_module_has_a_name_that_says_nothing(house: str) -> None:
    vague = [str(path.relative_to(ROOT)) for path in modules(house) if path.stem in NO_NAMES]
    assert not vague
