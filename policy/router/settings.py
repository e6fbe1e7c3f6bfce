"""What a router's EndpointPickerConfig says about revisions and about prefill.

Only what the path view needs: the rollout screener, the strict revision header, the decider. The whole schema per
router version, with lint, belongs to traffic policy. Facts: router-policy 1.1-1.2, 6.1, 6.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from policy.shares.facts import Decider, Screener

SCREENER = "disaggregatedset-rollout-screener"
PROFILE_HANDLER = "disagg-profile-handler"
REVISION_LABEL = "disaggregatedset.x-k8s.io/revision"
ROLE_LABEL = "disaggregatedset.x-k8s.io/role"
# The parser of libyaml, where PyYAML was built with it: ten times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MODES = ("sum", "max-role", "disabled")


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """`readable` is False where there is no document to read; `problems` say what in it makes no sense.

    `screener` is None where none is declared; `scope` is its label selector. `strict_header` is the header whose
    value pins a request to one revision ("" where there is none).
    """

    readable: bool
    screener: Screener | None = None
    scope: str = ""
    revision_label: str = REVISION_LABEL
    role_label: str = ROLE_LABEL
    strict_header: str = ""
    decider: Decider = "unknown"
    problems: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def read_settings(text: str) -> RouterSettings:
    """Read a configuration. Never raises: what cannot be read is said in `problems`.

    Only the first document counts, as for the router itself.
    """
    try:
        document = next(iter(yaml.load_all(text, Loader=_LOADER)), None)
    except yaml.YAMLError as error:
        return RouterSettings(readable=False, problems=(f"the configuration is no YAML: {_line(error)}",))
    if not isinstance(document, Mapping):
        return RouterSettings(readable=False, problems=("the configuration is empty or no mapping",))
    plugins = [each for each in document.get("plugins") or () if isinstance(each, Mapping)]
    problems: list[str] = []
    screeners = [each for each in plugins if each.get("type") == SCREENER]
    if len(screeners) > 1:
        problems.append(f"{len(screeners)} rollout screeners are declared; only the first is judged")
    found = _screener(_parameters(screeners[0]), problems) if screeners else RouterSettings(readable=True)
    return RouterSettings(
        readable=True,
        screener=found.screener,
        scope=found.scope,
        revision_label=found.revision_label,
        role_label=found.role_label,
        strict_header=found.strict_header,
        decider=_decider(plugins),
        problems=tuple(problems),
    )


def _line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}" if mark else "unreadable"


def _parameters(plugin: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = plugin.get("parameters")
    return parameters if isinstance(parameters, Mapping) else {}


def _screener(parameters: Mapping[str, Any], problems: list[str]) -> RouterSettings:
    gating = parameters.get("revisionGating")
    gating = gating if isinstance(gating, Mapping) else {}
    mode = gating.get("mode")
    if mode not in _MODES:
        problems.append(f"the screener's revisionGating.mode is {mode!r}, none of {', '.join(_MODES)}")
        return RouterSettings(readable=True)
    roles = (gating.get("requireRoles") or {}).get("values") or []
    revision_label = str(gating.get("revisionLabelKey") or REVISION_LABEL)
    return RouterSettings(
        readable=True,
        screener=Screener(mode=mode, required_roles=tuple(str(role) for role in roles)),
        scope=str((parameters.get("scope") or {}).get("labelSelector") or ""),
        revision_label=revision_label,
        role_label=str(gating.get("roleLabelKey") or ROLE_LABEL),
        strict_header=_strict_header(parameters.get("headerSelectors") or (), revision_label),
    )


def _strict_header(selectors: Any, revision_label: str) -> str:
    for each in selectors if isinstance(selectors, (list, tuple)) else ():
        if isinstance(each, Mapping) and (each.get("mode"), each.get("labelKey")) == (
            "strict",
            revision_label,
        ):
            return str(each.get("headerName") or "").lower()
    return ""


def _decider(plugins: list[Mapping[str, Any]]) -> Decider:
    handler = next((each for each in plugins if each.get("type") == PROFILE_HANDLER), None)
    if handler is None:
        return "never"
    parameters = _parameters(handler)
    if parameters.get("stageOrder") == "prefill-first":
        return "always"
    named = (parameters.get("deciders") or {}).get("prefill")
    by_name = {str(each.get("name") or each.get("type")): each for each in plugins}
    decider = by_name.get(str(named))
    if decider is None:
        return "unknown"
    if decider.get("type") == "always-disagg-pd-decider":
        return "always"
    if decider.get("type") != "prefix-based-pd-decider":
        return "unknown"
    return "never" if _parameters(decider).get("nonCachedTokens", 0) == 0 else "by-prompt"


def scope_matches(selector: str, labels: Mapping[str, str]) -> bool | None:
    """Whether an equality or set-based label selector in text form matches; None where it cannot be read."""
    for part in _parts(selector):
        found = _requirement(part, labels)
        if found is None:
            return None
        if not found:
            return False
    return True


def labels_demanded(selector: str) -> dict[str, str]:
    """Labels that whatever the selector matches carries, as far as it asks for one exact value."""
    found = {}
    for part in _parts(selector):
        key, sign, value = part.partition("=")
        if sign and not key.endswith("!") and not set(part) & set(" ()"):
            found[key] = value.removeprefix("=")
    return found


def _parts(selector: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(selector):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(selector[start:index])
            start = index + 1
    parts.append(selector[start:])
    return [part.strip() for part in parts if part.strip()]


def _requirement(part: str, labels: Mapping[str, str]) -> bool | None:
    words = part.replace("(", " ( ").replace(")", " ) ").split()
    if len(words) > 3 and words[1] in ("in", "notin") and words[2] == "(" and words[-1] == ")":
        values = [value.strip() for value in " ".join(words[3:-1]).split(",")]
        inside = labels.get(words[0]) in values
        return inside if words[1] == "in" else not inside
    for sign in ("!=", "==", "="):
        if sign in part:
            key, value = (side.strip() for side in part.split(sign, 1))
            return (labels.get(key) == value) != (sign == "!=")
    if len(words) == 1:
        name = words[0]
        return name[1:] not in labels if name.startswith("!") else name in labels
    return None
