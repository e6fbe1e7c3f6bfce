"""Options of a plan: where it holds, how long, who lets it go on. Read strictly, with every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.errors import BadInput
from controlplane.upgrades.gate_rules import read_gates
from policy.rollout.holds import FIRST_COMPLETE_ROW, UnknownHoldRule, check_rules

Json = dict[str, Any]

DEFAULT_HOLD_AGE = 4 * 3600
LONGEST_HOLD = 7 * 24 * 3600
CHOICES: Mapping[str, tuple[str, ...]] = {
    "hold_end": ("abort", "keep"),
    "promote": ("automatic", "manual"),
    "slice_order": ("together", "one-by-one"),
    "profile": ("normal", "fast"),
}
SECONDS: Mapping[str, tuple[float, float]] = {
    "hold_max_age": (1, LONGEST_HOLD),
    "stable_for": (0, 3600),
    "stuck_after": (5, 24 * 3600),
}
# `hold_votes`: whether a hold needs a step approval of its own; without it gates (and promote) decide. `gates`: what
# the plan changes of the environment's gates, by id.
DEFAULTS: Json = {
    "holds": [FIRST_COMPLETE_ROW],
    "hold_max_age": DEFAULT_HOLD_AGE,
    "hold_end": "abort",
    "hold_votes": True,
    "promote": "automatic",
    "slice_order": "together",
    "profile": "normal",
    "minimum_ready": {},
    "stuck_after": 1800,
    "gates": {},
}


def read_options(sent: Mapping[str, Any], *, stable_for: float) -> Json:
    """The options with defaults. Raises BadInput with the field: unknown names and values are never passed over."""
    options = {**DEFAULTS, "stable_for": stable_for, **sent}
    for name in options:
        if name not in DEFAULTS and name != "stable_for":
            raise _bad(
                name,
                f"There is no option {name}.",
                f"Use one of {', '.join(sorted([*DEFAULTS, 'stable_for']))}.",
            )
    for name, choices in CHOICES.items():
        if options[name] not in choices:
            raise _bad(name, f"{name} is {options[name]!r}.", f"Use {' or '.join(choices)}.")
    for name, (least, most) in SECONDS.items():
        value = options[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise _bad(name, f"{name} is {value!r}.", f"Give seconds from {least:g} to {most:g}.")
        options[name] = int(value) if float(value).is_integer() else str(value)
    if not isinstance(options["hold_votes"], bool):
        raise _bad("hold_votes", "hold_votes is true or false.", "Send a boolean.")
    if not isinstance(options["holds"], list):
        raise _bad("holds", "holds is a list of rules.", "Send a list.")
    try:
        options["holds"] = list(check_rules(map(str, options["holds"])))
    except UnknownHoldRule as error:
        raise _bad("holds", str(error), "Use the named rules.") from error
    _check_minimum(options["minimum_ready"])
    options["gates"] = read_gates(options["gates"])
    return options


def _check_minimum(minimum: Any) -> None:
    wrong = not isinstance(minimum, dict) or any(
        isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in minimum.values()
    )
    if wrong:
        raise _bad("minimum_ready", "minimum_ready maps role names to whole numbers.", 'Send {"decode": 1}.')


def _bad(field: str, sentence: str, next_action: str) -> BadInput:
    return BadInput("option-invalid", sentence, next_action=next_action, field=f"options.{field}")
