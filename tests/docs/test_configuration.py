"""docs/configuration.md lists every environment variable with its default, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
READERS = {"env_text", "env_flag", "env_seconds"}


def read_by_settings() -> Iterator[tuple[str, str]]:
    """(variable, default) for each call of a typed reader; the default as the page writes it."""
    tree = ast.parse((ROOT / "controlplane" / "settings.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READERS:
            name = node.args[0]
            if isinstance(name, ast.Constant):
                yield str(name.value), default(node.args[1] if len(node.args) > 1 else None)


def default(node: ast.expr | None) -> str:
    """A literal default, or how the page calls another one."""
    match node:
        case None:
            return "required"
        case ast.Constant(value=bool() as value):
            return "1" if value else "0"
        case ast.Constant(value=""):
            return "empty"
        case ast.Constant(value=value):
            return str(value)
        case _:
            return "computed"


def named_elsewhere() -> set[str]:
    """Variables of ours that code outside settings.py names."""
    found = set()
    for house in ("policy", "controlplane", "workers", "deploy", "tests"):
        for path in (ROOT / house).rglob("*.py"):
            found |= set(re.findall(r"\"(LOCKSTEP_[A-Z_]+)\"", path.read_text(encoding="utf-8")))
    return found


def on_page() -> dict[str, str]:
    """variable → default, from the tables of the page."""
    return dict(re.findall(r"^\| `([A-Z_]+)` \| (.*?) \|", PAGE, re.MULTILINE))


def test_every_setting_is_listed_with_its_default() -> None:
    page = {name: text.strip("`") for name, text in on_page().items()}
    for name, value in read_by_settings():
        assert name in page, f"{name} is missing"
        assert value == "computed" or page[name] == value, f"{name}: {page[name]} instead of {value}"


def test_nothing_is_listed_that_no_code_reads() -> None:
    known = {name for name, _ in read_by_settings()} | named_elsewhere()
    assert not set(on_page()) - known


def test_every_variable_of_ours_that_code_names_is_listed() -> None:
    settings = set(
        re.findall(r"^(LOCKSTEP_[A-Z_]+)\b", (ROOT / "controlplane/settings.py").read_text(), re.MULTILINE)
    )
    assert not named_elsewhere() - set(on_page()) - settings
