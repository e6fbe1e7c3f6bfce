"""What a router's EndpointPickerConfig says about revisions and about prefill.

Only what the path view needs: the rollout screener, the strict revision header, the decider. The whole schema per
router version, with lint, belongs to traffic policy. Facts: router-policy 1.1-1.2, 6.1, 6.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from policy.shares.facts import Decider, Screener

SCREENER = "disaggregatedset-rollout-screener"
PROFILE_HANDLER = "disagg-profile-handler"
# A gateway call per phase: each draws its pod, and its revision, alone (router-policy 6.2).
HEADER_HANDLER = "header-profile-handler"
REVISION_LABEL = "disaggregatedset.x-k8s.io/revision"
ROLE_LABEL = "disaggregatedset.x-k8s.io/role"
# The parser of libyaml, where PyYAML was built with it: ten times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MODES = ("sum", "max-role", "disabled")


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """`readable` is False where there is no document to read; `problems` say what in it makes no sense.

    `screener` is None where none is declared; `scope` is its label selector. `strict_header` is the header whose
    value pins a request to one revision ("" where there is none). `handler` is the type of the profile handler (""
    where none is declared: the router takes its single one).
    """

    readable: bool
    screener: Screener | None = None
    scope: str = ""
    revision_label: str = REVISION_LABEL
    role_label: str = ROLE_LABEL
    strict_header: str = ""
    decider: Decider = "unknown"
    handler: str = ""
    problems: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def read_settings(text: str) -> RouterSettings:
    """Read a configuration. Never raises: what cannot be read is said in `problems`.

    Only the first document counts, as for the router itself.
    """
    try:
        document = next(iter(yaml.load_all(text, Loader=_LOADER)), None)
    # PyYAML lets what it cannot make of a value escape: a date without such a month, a number without digits.
    except (yaml.YAMLError, ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        return RouterSettings(readable=False, problems=(f"the configuration is no YAML: {_line(error)}",))
    if not isinstance(document, Mapping):
        return RouterSettings(readable=False, problems=("the configuration is empty or no mapping",))
    plugins = [each for each in _list(document.get("plugins")) if isinstance(each, Mapping)]
    problems: list[str] = []
    screeners = [each for each in plugins if each.get("type") == SCREENER]
    if len(screeners) > 1:
        problems.append(f"{len(screeners)} rollout screeners are declared; only the first is judged")
    handlers = [kind for each in plugins if (kind := _text(each.get("type"))).endswith("-profile-handler")]
    if len(handlers) > 1:
        problems.append(f"{len(handlers)} profile handlers are declared; only one is allowed")
    found = _screener(_parameters(screeners[0]), problems) if screeners else RouterSettings(readable=True)
    return RouterSettings(
        readable=True,
        screener=found.screener,
        scope=found.scope,
        revision_label=found.revision_label,
        role_label=found.role_label,
        strict_header=found.strict_header,
        decider=_decider(plugins),
        handler=handlers[0] if handlers else "",
        problems=tuple(problems),
    )


def _line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}" if mark else "a value makes no sense"


def _parameters(plugin: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(plugin.get("parameters"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    """A word or number as text. Lists are not written out: a few lines of aliases make one that fills the memory."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return ""
    return str(value) if isinstance(value, (str, int, float)) else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _screener(parameters: Mapping[str, Any], problems: list[str]) -> RouterSettings:
    gating = _mapping(parameters.get("revisionGating"))
    mode = gating.get("mode")
    if mode not in _MODES:
        problems.append(f"the screener's revisionGating.mode is {_text(mode)!r}, none of {', '.join(_MODES)}")
        return RouterSettings(readable=True)
    roles = _list(_mapping(gating.get("requireRoles")).get("values"))
    revision_label = _text(gating.get("revisionLabelKey")) or REVISION_LABEL
    scope = _text(_mapping(parameters.get("scope")).get("labelSelector"))
    given = parameters.get("scope") or {}
    if (
        _read_selector(scope) is None
        or not isinstance(given, Mapping)
        or (given.get("labelSelector") and not scope)
    ):
        problems.append(f"the screener's scope {scope!r} cannot be read")
    return RouterSettings(
        readable=True,
        screener=Screener(mode=mode, required_roles=tuple(_text(role) for role in roles)),
        scope=scope,
        revision_label=revision_label,
        role_label=_text(gating.get("roleLabelKey")) or ROLE_LABEL,
        strict_header=_strict_header(_list(parameters.get("headerSelectors")), revision_label),
    )


def _strict_header(selectors: list[Any], revision_label: str) -> str:
    for each in selectors:
        if isinstance(each, Mapping) and (each.get("mode"), each.get("labelKey")) == (
            "strict",
            revision_label,
        ):
            return _text(each.get("headerName")).lower()
    return ""


def _decider(plugins: list[Mapping[str, Any]]) -> Decider:
    handler = next((each for each in plugins if each.get("type") == PROFILE_HANDLER), None)
    if handler is None:
        return "never"
    parameters = _parameters(handler)
    if parameters.get("stageOrder") == "prefill-first":
        return "always"
    named = _mapping(parameters.get("deciders")).get("prefill")
    by_name = {_text(each.get("name")) or _text(each.get("type")): each for each in plugins}
    decider = by_name.get(_text(named))
    if decider is None:
        return "unknown"
    if decider.get("type") == "always-disagg-pd-decider":
        return "always"
    if decider.get("type") != "prefix-based-pd-decider":
        return "unknown"
    return "never" if _parameters(decider).get("nonCachedTokens", 0) == 0 else "by-prompt"


def scope_matches(selector: str, labels: Mapping[str, str]) -> bool | None:
    """Whether an equality or set-based label selector in text form matches; None where it cannot be read."""
    asked = _read_selector(selector)
    return None if asked is None else all(each.matches(labels) for each in asked)


def labels_demanded(selector: str) -> dict[str, str]:
    """Labels that whatever the selector matches carries, as far as it asks for one exact value."""
    return {each.key: each.values[0] for each in _read_selector(selector) or () if each.sign == "="}


@dataclass(frozen=True, slots=True)
class _Requirement:
    """One part of a selector. `sign` is =, in, notin, exists or missing; `a!=b` is notin."""

    key: str
    sign: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """As Kubernetes has it: what asks for other values also matches where the label is missing."""
        if self.sign in ("exists", "missing"):
            return (self.key in labels) == (self.sign == "exists")
        return (labels.get(self.key) in self.values) == (self.sign != "notin")


_KEY = r"([A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?)"
_VALUE = r"((?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?)"
_EQUALITY = re.compile(rf"{_KEY}\s*(==|=|!=)\s*{_VALUE}")
_SET_BASED = re.compile(rf"{_KEY}\s+(in|notin)\s*\(([^()]*)\)")
_EXISTS = re.compile(rf"(!?)\s*{_KEY}")


@lru_cache(maxsize=1024)
def _read_selector(selector: str) -> tuple[_Requirement, ...] | None:
    if not selector.strip():
        return ()
    found = [_requirement(part) for part in re.split(r",(?![^()]*\))", selector)]
    whole = tuple(each for each in found if each is not None)
    return whole if len(whole) == len(found) else None


def _requirement(part: str) -> _Requirement | None:
    part = part.strip()
    if same := _EQUALITY.fullmatch(part):
        return _Requirement(same[1], "notin" if same[2] == "!=" else "=", (same[3],))
    if among := _SET_BASED.fullmatch(part):
        values = tuple(value.strip() for value in among[3].split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return _Requirement(among[1], among[2], values)
        return None
    if there := _EXISTS.fullmatch(part):
        return _Requirement(there[2], "missing" if there[1] else "exists")
    return None
