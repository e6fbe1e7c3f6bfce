"""The command line of `vllm serve`, as far as a simulated engine needs it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

# Flags that take no value, besides --enable-*, --disable-* and --no-*.
_BARE = (
    "trust-remote-code",
    "enforce-eager",
    "async-scheduling",
    "calculate-kv-scales",
    "skip-tokenizer-init",
)


def parse(words: Iterable[str]) -> tuple[str, dict[str, str]]:
    """(model, flags) of a command line; flags without leading dashes, "" for flags without a value.

    Knows ``--flag=value``, ``--flag value``, underscores for dashes, a positional model, ``vllm serve`` and
    ``python -m``. The last of equal flags wins.
    """
    flags: dict[str, str] = {}
    loose: list[str] = []
    left = _after_program(list(words))
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            loose.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        head, dot, rest = name.partition(".")
        name = head.replace("_", "-") + dot + rest
        if not equals and not _is_bare(name) and left and not left[0].startswith("--"):
            value = left.pop(0)
        flags[name] = value
    return flags.get("model") or (loose[0] if loose else ""), flags


def _after_program(words: list[str]) -> list[str]:
    if "serve" in words:
        return words[words.index("serve") + 1 :]
    if "-m" in words[:2]:
        return words[words.index("-m") + 2 :]
    return words[1:] if words and words[0].rsplit("/", 1)[-1] == "vllm" else words


def _is_bare(name: str) -> bool:
    return name.startswith(("enable-", "disable-", "no-")) or name in _BARE


def mapping(flags: Mapping[str, str], name: str) -> dict[str, Any]:
    """The JSON object of a flag, with its dotted parts (``--name.key value``) laid over it; {} if unreadable."""
    try:
        found = json.loads(flags.get(name) or "{}")
    except ValueError:
        found = {}
    result: dict[str, Any] = found if isinstance(found, dict) else {}
    for flag, text in flags.items():
        if flag.startswith(name + "."):
            *path, last = flag[len(name) + 1 :].split(".")
            inner = result
            for part in path:
                inner = inner.setdefault(part, {})
            inner[last] = _value(text)
    return result


def number(flags: Mapping[str, str], name: str, default: float) -> float:
    """A numeric flag; ``default`` when it is absent or unreadable."""
    try:
        return float(flags[name])
    except (KeyError, ValueError):
        return default


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
