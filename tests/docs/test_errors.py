"""docs/errors.md lists every code that Lockstep can answer with or be held by, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# What is made with one of these, or with a class derived from one, carries a code as its first argument or as
# `code=` / `id=`.
CARRIERS = {"LockstepError", "Hold", "Failure", "Refusal", "Hazard", "AuthenticationFailed"}
HOUSES = ("policy", "controlplane", "workers")


def modules() -> list[Path]:
    """Every module that may make a code."""
    return [path for house in HOUSES for path in sorted((ROOT / house).rglob("*.py"))]


def carriers() -> set[str]:
    """CARRIERS with every class that derives from one of them."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    known = set(CARRIERS)
    while more := {name for name, above in bases.items() if above & known} - known:
        known |= more
    return known


def codes_of(path: Path, known: set[str]) -> Iterator[tuple[str, str]]:
    """(code, where) for each literal code in a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name not in known:
            continue
        given = [*node.args[:1], *(one.value for one in node.keywords if one.arg in {"code", "id"})]
        for argument in given:
            for value in literals(argument):
                if CODE.fullmatch(value):
                    yield value, f"{path.relative_to(ROOT)}:{node.lineno}"


def literals(node: ast.expr) -> Iterator[str]:
    """The strings that an argument can be: a literal, or either side of a conditional."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from literals(value)


def in_source() -> dict[str, list[str]]:
    """Every code of the product, and where it is made."""
    known = carriers()
    found: dict[str, list[str]] = {}
    for path in modules():
        for code, where in codes_of(path, known):
            found.setdefault(code, []).append(where)
    for code in in_other_forms():
        found.setdefault(code, [])
    return found


def in_other_forms() -> set[str]:
    """Codes of the framework's errors, of the API server's (named after their class), and of excluded voters."""
    problems = ast.parse((ROOT / "controlplane/access/problems.py").read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(problems):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"_document", "_plain"}
        ):
            found |= {value for value in literals(node.args[1]) if CODE.fullmatch(value)}
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == "_CODES"
        ):
            found |= {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
    kube = ast.parse((ROOT / "controlplane/kube/errors.py").read_text(encoding="utf-8"))
    for node in ast.walk(kube):
        if isinstance(node, ast.ClassDef) and {"KubeError", "Conflict"} & {
            ast.unparse(base) for base in node.bases
        }:
            found.add(re.sub(r"(?<=[a-z])(?=[A-Z])", "-", node.name).lower())
    eligibility = ast.parse((ROOT / "policy/approval/eligibility.py").read_text(encoding="utf-8"))
    for node in eligibility.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            found.add(node.value.value)
    return found


def on_page() -> list[str]:
    """The codes in the first column of the page's tables."""
    return re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


def test_every_code_is_explained_once() -> None:
    assert len(on_page()) == len(set(on_page()))
    missing = {code: where for code, where in in_source().items() if code not in set(on_page())}
    assert not missing


def test_no_code_is_explained_that_does_not_exist() -> None:
    assert not set(on_page()) - set(in_source())


def test_every_code_has_a_meaning_and_a_next_action() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    empty = [
        row
        for row in rows
        if len(row.split(" | ")) < 3 or not all(cell.strip("| ") for cell in row.split(" | "))
    ]
    assert not empty
