"""How Go's types respell what went through them: quantities in one spelling, and empty values left out.

A real server stores its own kinds so, and what a webhook written in Go has changed comes back so. Custom kinds are
stored as they were written. Programs that compare templates meet both spellings.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

Doc = dict[str, Any]
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]+|[0-9]+\.)([numkMGTPE]i?|[eE][+-]?[0-9]+)?")
# Left out where false, 0 or "": their Go fields are plain values. Pointers (terminationGracePeriodSeconds, optional,
# replicas, ...) keep what was written.
_PLAIN = frozenset(
    {
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "readOnly",
        "stdin",
        "stdinOnce",
        "tty",
        "initialDelaySeconds",
        "value",
        "subPath",
        "subPathExpr",
        "workingDir",
        "hostname",
        "subdomain",
        "nodeName",
        "serviceAccountName",
        "serviceAccount",
        "priorityClassName",
    }
)
_EMPTY = frozenset(
    {
        "args",
        "command",
        "env",
        "envFrom",
        "ports",
        "volumeMounts",
        "volumes",
        "initContainers",
        "imagePullSecrets",
        "tolerations",
        "nodeSelector",
        "labels",
        "annotations",
        "limits",
        "requests",
        "matchLabels",
        "topologySpreadConstraints",
        "hostAliases",
        "readinessGates",
        "capabilities",
    }
)


def respell(template: Doc) -> None:
    """Respell a pod, or a pod template, in place."""
    for part in ("metadata", "spec"):
        if isinstance(template.get(part), dict):
            _walk(template[part])


def _walk(value: Any) -> None:
    if isinstance(value, dict):
        for key in list(value):
            each = value[key]
            if key in ("limits", "requests") and isinstance(each, dict):
                value[key] = {name: quantity(amount) for name, amount in each.items()}
            elif key == "sizeLimit":
                value[key] = quantity(each)
            else:
                _walk(each)
            if each is None or (key in _PLAIN and each in (False, 0, "")) or (key in _EMPTY and not each):
                del value[key]
    elif isinstance(value, list):
        for each in value:
            _walk(each)


def quantity(amount: object) -> str:
    """A quantity as Go writes it: a whole number with the largest suffix; text that is none stays."""
    word = str(amount)
    found = _QUANTITY.fullmatch(word)
    if not found:
        return word
    suffix = found[2] or ""
    try:
        number = Decimal(found[1])
    except InvalidOperation:
        return word
    if suffix in _BINARY[1:]:
        return _written(number * 1024 ** _BINARY.index(suffix), 1024, _BINARY)
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        number, suffix = number * Decimal(10) ** int(suffix[1:]), ""
    return _written(number * Decimal(1000) ** (_DECIMAL.index(suffix)), 1000, _DECIMAL)


def _written(smallest: Decimal, base: int, suffixes: tuple[str, ...]) -> str:
    whole = int(smallest.to_integral_value(ROUND_CEILING))
    step = 0
    while whole and whole % base == 0 and step + 1 < len(suffixes):
        whole, step = whole // base, step + 1
    return f"{whole}{suffixes[step]}" if whole else "0"
