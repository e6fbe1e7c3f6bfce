"""CEL as admission policies use it: compiled once, variables evaluated only where an expression touches them.

The language itself comes from ``common-expression-language``. An expression that fails raises EvaluationFailed; that
includes touching what is not there, as in the real server.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import cel

from deploy.demo.emulator.frozen import thaw

_VARIABLE = re.compile(r"\bvariables\s*\.\s*([A-Za-z_]\w*)")
_TEXT = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")


class EvaluationFailed(Exception):
    """An expression has no value; the text says why."""


@functools.lru_cache(maxsize=4096)
def _compiled(expression: str) -> Any:
    return cel.compile(expression)


def problem_of(expression: str) -> str:
    """Why an expression is none, or an empty string."""
    try:
        _compiled(expression)
    except (ValueError, RuntimeError, TypeError) as problem:
        return str(problem).splitlines()[0]
    return ""


@functools.lru_cache(maxsize=4096)
def _touches(expression: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_VARIABLE.findall(_TEXT.sub("''", expression))))


class Scope:
    """The names that expressions of one policy see for one write and one parameter.

    ``variables`` are expressions in the order of the policy; each may use those before it.
    """

    def __init__(self, names: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        self._names = {key: thaw(value) for key, value in names.items()}
        self._expressions = variables
        self._values: dict[str, Any] = {}
        self._failed: set[str] = set()

    def value(self, expression: str) -> Any:
        """The value of an expression. Raises EvaluationFailed."""
        # A variable that fails is left out: it fails the expression only where that does touch it, which a
        # condition before it may prevent.
        known = {name: self._values[name] for name in _touches(expression) if self._has(name)}
        try:
            return _compiled(expression).execute({**self._names, "variables": known})
        except Exception as problem:  # the library raises KeyError, TypeError, RuntimeError, ValueError, ...
            raise EvaluationFailed(
                str(problem).splitlines()[0] if str(problem) else repr(problem)
            ) from problem

    def _has(self, name: str) -> bool:
        if name in self._values:
            return True
        if name in self._failed or name not in self._expressions:
            return False
        try:
            self._values[name] = self.value(self._expressions[name])
        except EvaluationFailed:
            self._failed.add(name)
            return False
        return True
