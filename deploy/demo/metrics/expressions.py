"""PromQL as read by `promql-parser`, as a tree of our own that has only what can be evaluated here.

Everything else is refused while reading, so that it never depends on the samples whether an expression is understood.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import promql_parser as promql

from deploy.demo.metrics.errors import BadData
from deploy.demo.metrics.metric import NAME
from deploy.demo.metrics.patterns import BadPattern, compile_pattern

SCALAR, VECTOR, MATRIX, STRING = "scalar", "vector", "matrix", "string"
# The parser descends by recursion, and a deep expression would end the whole process; so do we.
MOST_SIGNS, MOST_NESTING, MOST_DEPTH = 200_000, 2000, 100
_QUOTED = re.compile(r"""\"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`""")
_NESTING = re.compile(r"[-+*/%^(<>=!]|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
# Kinds of arguments, and of what is given back.
FUNCTIONS: Mapping[str, tuple[tuple[str, ...], str]] = MappingProxyType(
    {
        **{
            name: ((MATRIX,), VECTOR)
            for name in (
                "rate",
                "increase",
                "resets",
                "max_over_time",
                "min_over_time",
                "count_over_time",
                "last_over_time",
            )
        },
        "time": ((), SCALAR),
        "timestamp": ((VECTOR,), VECTOR),
        "histogram_quantile": ((SCALAR, VECTOR), VECTOR),
        "label_replace": ((VECTOR, STRING, STRING, STRING, STRING), VECTOR),
    }
)
AGGREGATIONS = frozenset({"sum", "avg", "min", "max", "count", "group", "topk"})
SETS = frozenset({"and", "or", "unless"})
COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">="})
OPERATORS = frozenset({"+", "-", "*", "/"}) | COMPARISONS | SETS


@dataclass(frozen=True, slots=True)
class Match:
    """One matcher; ``pattern`` None compares with the value. A label that is not there is empty."""

    label: str
    value: str
    pattern: re.Pattern[str] | None
    wanted: bool
    _known: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    def holds(self, value: str) -> bool:
        """Whether a value of the label passes."""
        if self.pattern is None:
            return (value == self.value) is self.wanted
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = (self.pattern.fullmatch(value) is not None) is self.wanted
        return found


@dataclass(frozen=True, slots=True)
class Number:
    value: float
    kind: str = SCALAR


@dataclass(frozen=True, slots=True)
class Text:
    value: str
    kind: str = STRING


@dataclass(frozen=True, slots=True)
class Select:
    """Series, ``offset`` milliseconds back from the moment that is asked about, or from ``at``."""

    matches: tuple[Match, ...]
    offset: int
    at: int | str | None  # "start" and "end" of the question
    kind: str = VECTOR


@dataclass(frozen=True, slots=True)
class Span:
    """Samples of the last ``range`` milliseconds."""

    select: Select
    range: int
    kind: str = MATRIX


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    args: tuple[Node, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Over groups of the same values of ``labels`` (``by``), or of all others. ``param`` is topk's k."""

    name: str
    inner: Node
    by: bool
    labels: tuple[str, ...]
    param: Node | None
    kind: str = VECTOR


@dataclass(frozen=True, slots=True)
class Matching:
    """How elements of two vectors find each other: `on` these labels, or on all but these. ``many`` is the side
    ("left", "right" or neither) that may have several, ``include`` are labels that it gets from the other."""

    on: bool = False
    labels: tuple[str, ...] = ()
    many: str = ""
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary:
    sign: str
    left: Node
    right: Node
    boolean: bool
    matching: Matching
    kind: str


Node = Number | Text | Select | Span | Call | Aggregate | Binary


@lru_cache(maxsize=512)
def read(text: str) -> Node:
    """The tree of an expression. Raises BadData for what is no PromQL, and for what is not evaluated here."""
    if len(text) > MOST_SIGNS or len(_NESTING.findall(_QUOTED.sub("", text))) > MOST_NESTING:
        raise BadData("the expression is too long for this metric store")
    try:
        parsed = promql.parse(text)
    except ValueError as problem:
        raise BadData(f"parse error: {problem}") from None
    return _node(parsed, MOST_DEPTH)


def read_selector(text: str) -> tuple[Match, ...]:
    """The matchers of one selector. Raises BadData."""
    found = read(text)
    if not isinstance(found, Select) or found.offset or found.at is not None:
        raise BadData(f"parse error: {text!r} is no selector of series")
    return found.matches


def _node(parsed: Any, depth: int) -> Node:
    if depth == 0:
        raise BadData("the expression is too deep for this metric store")
    match parsed:
        case promql.ParenExpr():
            return _node(parsed.expr, depth - 1)
        case promql.NumberLiteral():
            return Number(parsed.val)
        case promql.StringLiteral():
            return Text(parsed.val)
        case promql.VectorSelector():
            return _select(parsed)
        case promql.MatrixSelector():
            return Span(_select(parsed.vector_selector), _ms(parsed.range))
        case promql.Call():
            return _call(parsed, depth - 1)
        case promql.AggregateExpr():
            return _aggregate(parsed, depth - 1)
        case promql.BinaryExpr():
            return _binary(parsed, depth - 1)
    raise unsupported("a subquery" if isinstance(parsed, promql.SubqueryExpr) else "a sign before a vector")


def unsupported(what: str) -> BadData:
    """The refusal of what Prometheus could do."""
    return BadData(f"{what} is not supported by this metric store; it evaluates what Lockstep's queries use")


def _select(parsed: Any) -> Select:
    if parsed.matchers.or_matchers:
        raise unsupported("'or' between matchers")
    matches = [_match(one) for one in parsed.matchers.matchers]
    if parsed.name:
        matches.insert(0, Match(NAME, parsed.name, None, True))
    if all(one.holds("") for one in matches):
        raise BadData("parse error: vector selector must contain at least one non-empty matcher")
    return Select(tuple(matches), _ms(parsed.offset) if parsed.offset else 0, _at(parsed.at))


def _at(parsed: Any) -> int | str | None:
    if parsed is None:
        return None
    if parsed.type == promql.AtModifierType.At:
        return _ms(parsed.at - dt.datetime.fromtimestamp(0, dt.UTC))
    return "start" if parsed.type == promql.AtModifierType.Start else "end"


def _match(parsed: Any) -> Match:
    wanted = parsed.op in (promql.MatchOp.Equal, promql.MatchOp.Re)
    if parsed.op in (promql.MatchOp.Equal, promql.MatchOp.NotEqual):
        return Match(parsed.name, parsed.value, None, wanted)
    try:
        return Match(parsed.name, parsed.value, compile_pattern(parsed.value), wanted)
    except BadPattern as problem:
        raise BadData(f"parse error: {problem}") from None


def _call(parsed: Any, depth: int) -> Call:
    name = parsed.func.name
    if name not in FUNCTIONS:
        raise unsupported(f"the function {name}()")
    wanted, gives = FUNCTIONS[name]
    args = tuple(_node(one, depth) for one in parsed.args)
    if tuple(one.kind for one in args) != wanted:
        raise BadData(f"parse error: wrong number or type of arguments in call to function {name!r}")
    return Call(name, args, gives)


def _aggregate(parsed: Any, depth: int) -> Aggregate:
    name = str(parsed.op)
    if name not in AGGREGATIONS:
        raise unsupported(f"the aggregation {name}")
    inner = _node(parsed.expr, depth)
    param = _node(parsed.param, depth) if parsed.param is not None else None
    if inner.kind != VECTOR or (param is not None) != (name == "topk") or param and param.kind != SCALAR:
        raise BadData(f"parse error: wrong type of an argument of the aggregation {name!r}")
    modifier = parsed.modifier
    by = modifier is None or modifier.type == promql.AggModifierType.By
    labels = tuple(modifier.labels) if modifier is not None else ()
    return Aggregate(name, inner, by, tuple(dict.fromkeys(labels)), param)


def _binary(parsed: Any, depth: int) -> Binary:
    sign, left, right = str(parsed.op), _node(parsed.lhs, depth), _node(parsed.rhs, depth)
    if sign not in OPERATORS:
        raise unsupported(f"the operator {sign}")
    kinds = {left.kind, right.kind}
    if not kinds <= {SCALAR, VECTOR}:
        raise BadData("parse error: binary expression must contain only scalar and instant vector types")
    modifier = parsed.modifier
    boolean = bool(modifier is not None and modifier.return_bool)
    if boolean and sign not in COMPARISONS:
        raise BadData("parse error: bool modifier can only be used on comparison operators")
    if SCALAR in kinds:
        if sign in SETS:
            raise BadData(f"parse error: set operator {sign!r} not allowed in binary scalar expression")
        if kinds == {SCALAR} and sign in COMPARISONS and not boolean:
            raise BadData("parse error: comparisons between scalars must use BOOL modifier")
        if modifier is not None and modifier.matching is not None:
            raise BadData("parse error: vector matching only allowed between instant vectors")
    return Binary(sign, left, right, boolean, _matching(modifier), SCALAR if kinds == {SCALAR} else VECTOR)


def _matching(modifier: Any) -> Matching:
    if modifier is None:
        return Matching()
    if modifier.fill_values.lhs is not None or modifier.fill_values.rhs is not None:
        raise unsupported("a fill value")
    many, labels = "", modifier.matching
    if modifier.card == promql.VectorMatchCardinality.ManyToOne:
        many = "left"
    elif modifier.card == promql.VectorMatchCardinality.OneToMany:
        many = "right"
    return Matching(
        on=labels is not None and labels.type == promql.LabelModifierType.Include,
        labels=tuple(labels.labels) if labels is not None else (),
        many=many,
        include=tuple(modifier.group_labels or ()) if many else (),
    )


def _ms(span: dt.timedelta) -> int:
    return span // dt.timedelta(milliseconds=1)
