"""The architecture page is the import contract: both name the same layers in the same order."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
    "contracts"
]


def names(layer: str) -> set[str]:
    """The packages of one layer. Parentheses mark what is not there yet, in the contract as on the page."""
    return {name.strip() for name in layer.split("|")}


def contract(containers: list[str]) -> list[set[str]]:
    """The layers of the contract over these containers, top first."""
    found = [one for one in CONTRACTS if one["type"] == "layers" and one.get("containers", []) == containers]
    assert len(found) == 1
    return [names(layer) for layer in found[0]["layers"]]


def drawn(title: str) -> list[set[str]]:
    """The layers of one ```text block of the page, top first; a line of the drawing is a layer."""
    block = re.search(rf"```text\n{re.escape(title)}\n(.*?)```", PAGE, re.DOTALL)
    assert block, f"the page has no drawing titled {title!r}"
    lines = [line.split("·")[0].strip() for line in block.group(1).splitlines()]
    return [names(line) for line in lines if line and line != "↓"]


def described(heading: str) -> list[str]:
    """The names in the first column of the table under a heading."""
    section = re.search(rf"## {re.escape(heading)}\n(.*?)(?:\n## |\Z)", PAGE, re.DOTALL)
    assert section, f"the page has no section {heading!r}"
    return re.findall(r"^\| `([^`]+)`", section.group(1), re.MULTILINE)


@pytest.mark.parametrize(
    ("title", "containers"), [("houses", []), ("rooms of controlplane", ["controlplane"])]
)
def test_the_drawing_has_the_layers_of_the_contract(title: str, containers: list[str]) -> None:
    assert drawn(title) == contract(containers)


def test_what_is_in_parentheses_is_not_there_and_the_rest_is() -> None:
    for layers, folder in ((contract([]), ROOT), (contract(["controlplane"]), ROOT / "controlplane")):
        for name in set().union(*layers):
            bare = name.strip("()")
            there = (folder / bare).is_dir() or (folder / f"{bare}.py").is_file()
            composition = bare in {
                "urls",
                "asgi",
                "settings",
            }  # may not be imported, so the contract may miss them
            assert there == (not name.startswith("(") or composition), name


def test_every_package_of_the_control_plane_is_in_a_layer_and_described() -> None:
    packages = {path.parent.name for path in (ROOT / "controlplane").glob("*/__init__.py")}
    layers = {name.strip("()") for layer in contract(["controlplane"]) for name in layer}
    assert packages <= layers
    assert packages == {
        name for name in described("What each room owns") if "/" not in name and "." not in name
    }


def test_the_states_of_an_operation_and_their_verbs_are_those_of_the_machine() -> None:
    from policy.rollout.machine import Phase, State, allowed_verbs

    assert described("States of an operation") == list(State)
    rows = re.findall(r"^\| `([^`]+)` \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE)
    verbs = {state: cell for state, cell in rows if state in set(State)}
    for state in State:
        assert verbs[state] == (", ".join(allowed_verbs(state, Phase.FORWARD)) or "–"), state
