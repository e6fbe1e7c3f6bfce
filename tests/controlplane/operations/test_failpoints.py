"""Orders to kill and pause: which process takes which one, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.operations import failpoints
from controlplane.operations.failpoints import reach

STEP = "toy.write"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of orders."""
    monkeypatch.setenv("LOCKSTEP_FAILPOINTS", str(tmp_path))
    return tmp_path


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been done to this process."""
    done: list[str] = []
    monkeypatch.setattr(failpoints, "_carry_out", done.append)
    return done


def test_an_order_is_taken_once(folder: Path, carried_out: list[str]) -> None:
    (folder / "before-call.toy.write").write_text("kill")
    reach("after-call", STEP, verb="get")
    reach("before-call", "toy.look", verb="get")
    assert carried_out == []
    reach("before-call", STEP, verb="get")
    reach("before-call", STEP, verb="get")
    assert carried_out == ["kill"]


def test_the_third_write_and_then_the_next_commit(folder: Path, carried_out: list[str]) -> None:
    (folder / "after-call.toy.write@7").write_text("kill write 3\nstop dry-run patch\n")
    for verb in ("get", "replace", "patch"):
        reach("after-call", STEP, subject="7", verb=verb)
    reach("after-call", STEP, subject="8", verb="create")
    assert carried_out == []
    reach("after-call", STEP, subject="7", verb="create")
    assert carried_out == ["kill"]
    reach("after-call", STEP, subject="7", verb="patch")
    assert carried_out == ["kill"]
    reach("after-call", STEP, subject="7", verb="dry-run patch")
    assert carried_out == ["kill", "stop"]
    assert all(".taken." in path.name for path in folder.iterdir())


def test_without_a_folder_nothing_happens(carried_out: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_FAILPOINTS", raising=False)
    reach("before-call", STEP)
    assert carried_out == []
