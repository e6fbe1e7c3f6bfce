"""README and docs: links lead somewhere, named make targets exist, and nothing of one machine is in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "deploy").rglob("*.md"))]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [link for link in targets if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_named_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8"))) <= targets


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_nothing_of_one_machine_is_in_them(page: Path) -> None:
    assert not re.findall(r"(?<![\w.])/(?:root|home|work|Users)/\S*", page.read_text(encoding="utf-8"))


def test_the_lock_names_no_index() -> None:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert not re.findall(r"://|^-", text, re.MULTILINE)
    assert all(
        re.fullmatch(r"[a-z0-9-]+==\S+", line) for line in text.splitlines() if not line.startswith("#")
    )
