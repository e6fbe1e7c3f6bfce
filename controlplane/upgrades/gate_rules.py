"""The gates of a plan: those of the environment, with what the plan changes of them. Read strictly, with bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from controlplane.errors import BadInput
from policy.approval.risk import Environment
from policy.gates import Gate, default_gates

Json = dict[str, Any]

# Whole numbers that a plan may set, with their least and most.
WHOLE: Mapping[str, tuple[int, int]] = {"window_s": (30, 24 * 3600), "minimum_samples": (1, 10_000_000)}
FIELDS = ("threshold", *WHOLE, "required")
IDS = tuple(gate.id for gate in default_gates("production"))
# Required in every environment. Without one of them nothing says that the path works.
OF_THE_PATH = ("failed-transfers", "probe-success", "parity")


def read_gates(sent: Any) -> Json:
    """Changes by gate id, with numbers that have one canonical form. Raises BadInput `option-invalid` with the
    field: unknown gates and fields are never passed over."""
    if not isinstance(sent, Mapping):
        raise _bad("", "gates maps ids of gates to what changes.", 'Send {"ttft": {"threshold": 1.5}}.')
    read = {}
    for name, changes in sent.items():
        if name not in IDS:
            raise _bad(f".{name}", f"There is no gate {name}.", f"Use one of {', '.join(IDS)}.")
        if not isinstance(changes, Mapping) or not changes:
            raise _bad(f".{name}", "A gate is an object of fields.", f"Send some of {', '.join(FIELDS)}.")
        read[name] = {field: _read(name, field, value) for field, value in sorted(changes.items())}
    if all(read.get(name, {}).get("required") is False for name in OF_THE_PATH):
        raise _bad(
            "",
            f"Without {', '.join(OF_THE_PATH)} nothing says that the path works.",
            "Leave one of them required.",
        )
    return read


def gates_of(environment: Environment, changes: Mapping[str, Json]) -> tuple[Gate, ...]:
    """The gates of an environment with the changes of `read_gates`."""
    return with_rules(environment, [{"id": name, **fields} for name, fields in changes.items()])


def rules_of(gates: Iterable[Gate]) -> list[Json]:
    """What is approved of each gate, in canonical form."""
    return [
        {
            "id": gate.id,
            "threshold": _canonical(gate.threshold),
            "window_s": gate.window_s,
            "minimum_samples": gate.minimum_samples,
            "required": gate.required,
        }
        for gate in gates
    ]


def with_rules(environment: Environment, rules: Iterable[Mapping[str, Any]]) -> tuple[Gate, ...]:
    """The inverse of `rules_of`; a rule for a gate that this version does not know is left out."""
    by_id = {str(rule["id"]): rule for rule in rules}
    found = []
    for gate in default_gates(environment):
        rule = by_id.get(gate.id, {})
        fields = {name: rule[name] for name in (*WHOLE, "required") if name in rule}
        threshold = float(rule.get("threshold", gate.threshold))
        found.append(replace(gate, threshold=threshold, **fields))
    return tuple(found)


def weakened(environment: Environment, changes: Mapping[str, Json]) -> list[str]:
    """A sentence for every way in which the plan's gates let more pass than the environment's. Another window
    counts as such: a shorter one sees less, a longer one thins out what is new."""
    found = []
    for usual, gate in zip(default_gates(environment), gates_of(environment, changes), strict=True):
        if not usual.required:
            continue
        if not gate.required:
            found.append(f"gate {gate.id} only shown")
        looser = (
            gate.threshold > usual.threshold
            if gate.comparison == "at-most"
            else gate.threshold < usual.threshold
        )
        if looser:
            word = gate.comparison.replace("-", " ")
            found.append(f"gate {gate.id} {word} {gate.threshold:g} instead of {usual.threshold:g}")
        if gate.minimum_samples < usual.minimum_samples:
            found.append(
                f"gate {gate.id} with {gate.minimum_samples} samples instead of {usual.minimum_samples}"
            )
        if gate.window_s != usual.window_s:
            found.append(f"gate {gate.id} over {gate.window_s} s instead of {usual.window_s} s")
    return found


def _read(name: str, field: str, value: Any) -> Any:
    where = f".{name}.{field}"
    if field == "required":
        if not isinstance(value, bool):
            raise _bad(where, "required is true or false.", "Send a boolean.")
        return value
    if field == "threshold":
        number = _number(value)
        if number is None or not 0 <= number <= 1e9:
            raise _bad(where, f"threshold is {value!r}.", "Give a number of at least 0.")
        if number == 0 and any(gate.id == name and gate.relative for gate in default_gates("production")):
            raise _bad(where, "This gate is relative to the old revision.", "Give a factor above 0.")
        return _canonical(number)
    if field in WHOLE:
        least, most = WHOLE[field]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _bad(where, f"{field} is {value!r}.", f"Give a whole number from {least} to {most}.")
        return value
    raise _bad(where, f"A gate has no {field}.", f"Use {', '.join(FIELDS)}.")


def _number(value: Any) -> float | None:
    """A number, or the text that `_canonical` has made of one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _canonical(number: float) -> int | str:
    return int(number) if float(number).is_integer() else repr(float(number))


def _bad(where: str, sentence: str, next_action: str) -> BadInput:
    return BadInput("option-invalid", sentence, next_action=next_action, field=f"options.gates{where}")
