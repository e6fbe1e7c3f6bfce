"""The fields that a draft may set, read from JSON and written into a container."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policy.rollout.pace import is_percent
from policy.rollout.refusal import Refusal

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
PACE_FIELDS = ("maxSurge", "maxUnavailable")
RESOURCE_KINDS = ("limits", "requests")
LARGEST_REPLICAS = 1_000_000  # CRD of lws v0.9.0

_VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_IMAGE = re.compile(r"[^\s]+")


@dataclass(frozen=True, slots=True)
class Setting:
    """One value for one place in a container. `keys` is the place, `value` None removes what is there.

    Places: (image), (args), (startupProbe) and its like, (env, NAME), (resources, limits, cpu).
    """

    keys: tuple[str, ...]
    value: object

    @property
    def label(self) -> str:
        """The place as text: `env[NAME]`, `resources.limits.cpu`."""
        if self.keys[0] == "env":
            return f"env[{self.keys[1]}]"
        return ".".join(self.keys)

    def read(self, container: Mapping[str, Any]) -> object:
        """What is there now; for a variable its whole entry; None where nothing is."""
        if self.keys[0] == "env":
            entries = container.get("env") or []
            return next((entry for entry in entries if entry.get("name") == self.keys[1]), None)
        here: Any = container
        for key in self.keys:
            here = (here or {}).get(key)
        return here

    def write(self, container: dict[str, Any]) -> None:
        """Put the value there, in place."""
        if self.keys[0] == "env":
            self._write_variable(container)
            return
        here = container
        for key in self.keys[:-1]:
            here[key] = dict(here.get(key) or {})
            here = here[key]
        if self.value is None:
            here.pop(self.keys[-1], None)
        else:
            here[self.keys[-1]] = copy.deepcopy(self.value)

    def _write_variable(self, container: dict[str, Any]) -> None:
        name = self.keys[1]
        entry = {"name": name, "value": self.value}
        entries = list(container.get("env") or [])
        places = [index for index, old in enumerate(entries) if old.get("name") == name]
        if self.value is None:
            entries = [old for old in entries if old.get("name") != name]
        elif places:
            entries[places[0]] = entry
        else:
            entries.append(entry)
        if entries:
            container["env"] = entries
        else:
            container.pop("env", None)


def read_container(
    document: Mapping[str, Any], path: str, refusals: list[Refusal]
) -> tuple[tuple[Setting, ...], list[str]]:
    """The settings in the container fields of `document`, and the names of fields that do not exist.

    What is wrong goes to `refusals`.
    """
    settings: list[Setting] = []
    unknown = []
    for field, value in document.items():
        where = f"{path}.{field}"
        if field == "container":
            continue
        if field == "image":
            settings += _image(value, where, refusals)
        elif field == "args":
            settings += _arguments(value, where, refusals)
        elif field == "env":
            settings += _variables(value, where, refusals)
        elif field == "resources":
            settings += _resources(value, where, refusals)
        elif field in PROBES:
            settings += _probe(field, value, where, refusals)
        else:
            unknown.append(str(field))
    return tuple(settings), unknown


def read_replicas(document: Mapping[str, Any], path: str, refusals: list[Refusal]) -> int | None:
    """The wanted groups of a role, None where the draft does not say."""
    if "replicas" not in document:
        return None
    value = document["replicas"]
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_REPLICAS:
        return value
    sentence = "the number of groups is a whole number from 1 to 1,000,000"
    if value == 0:
        sentence = "a role cannot be taken to 0 groups by an upgrade: its set would stop serving"
    refusals.append(Refusal("replicas-bad", sentence, "give a number of at least 1", f"{path}.replicas"))
    return None


def read_pace(document: Mapping[str, Any], path: str, refusals: list[Refusal]) -> dict[str, int | str]:
    """maxSurge and maxUnavailable as far as the draft gives them."""
    pace: dict[str, int | str] = {}
    for field in PACE_FIELDS:
        if field not in document:
            continue
        value = document[field]
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            pace[field] = value
        elif is_percent(value) and 0 <= int(str(value)[:-1]) <= 100:
            pace[field] = str(value)
        else:
            refusals.append(
                Refusal(
                    "pace-bad",
                    f"{field} is a whole number of groups or a percent up to 100%",
                    'write it like 1 or "25%"',
                    f"{path}.{field}",
                )
            )
    return pace


def _malformed(sentence: str, action: str, where: str) -> Refusal:
    return Refusal("draft-malformed", sentence, action, where)


def _image(value: object, where: str, refusals: list[Refusal]) -> list[Setting]:
    if isinstance(value, str) and _IMAGE.fullmatch(value):
        return [Setting(("image",), value)]
    refusals.append(_malformed("an image is text without spaces", "give its full reference", where))
    return []


def _arguments(value: object, where: str, refusals: list[Refusal]) -> list[Setting]:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return [Setting(("args",), list(value) or None)]
    refusals.append(_malformed("arguments are a list of text", "write numbers in quotes", where))
    return []


def _variables(value: object, where: str, refusals: list[Refusal]) -> list[Setting]:
    if not isinstance(value, Mapping):
        refusals.append(_malformed("variables are an object of name and text", "write NAME: text", where))
        return []
    settings = []
    for name, text in value.items():
        place = f"{where}[{name}]"
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            refusals.append(
                _malformed(f"{name!r} cannot name a variable", "use letters, digits and _", place)
            )
        elif isinstance(text, Mapping):
            refusals.append(
                Refusal(
                    "value-from-elsewhere",
                    "a draft sets plain values, not references to Secrets or ConfigMaps",
                    "export the plan and let the owner of the set write it",
                    place,
                )
            )
        elif text is not None and not isinstance(text, str):
            refusals.append(_malformed("the value of a variable is text", "write it in quotes", place))
        else:
            settings.append(Setting(("env", name), text))
    return settings


def _resources(value: object, where: str, refusals: list[Refusal]) -> list[Setting]:
    settings = []
    kinds = value if isinstance(value, Mapping) else {"": value}
    for kind, amounts in kinds.items():
        if kind not in RESOURCE_KINDS or not isinstance(amounts, Mapping):
            refusals.append(
                _malformed(
                    "resources are limits and requests, each an object of name and amount",
                    'write limits: {"cpu": "8"}',
                    f"{where}.{kind}" if kind else where,
                )
            )
            continue
        for name, amount in amounts.items():
            if amount is None or (isinstance(amount, int | str) and not isinstance(amount, bool)):
                settings.append(Setting(("resources", kind, str(name)), amount))
            else:
                place = f"{where}.{kind}.{name}"
                refusals.append(_malformed("an amount is text or a whole number", 'write "8"', place))
    return settings


def _probe(field: str, value: object, where: str, refusals: list[Refusal]) -> list[Setting]:
    if value is None or (isinstance(value, Mapping) and value):
        return [Setting((field,), dict(value) if isinstance(value, Mapping) else None)]
    refusals.append(_malformed("a probe is an object", "write it as in a pod", where))
    return []
