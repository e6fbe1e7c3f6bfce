"""Words of a command line as flags, the way the engines' own parsers read them; nothing raises.

Rules of vLLM's parser (`vllm/utils/argparse_utils.py`): underscores and dashes are alike before the first
dot; `--config.key value` builds an object, `key+` appends to a list, and such an object replaces one given as
JSON under the same flag; otherwise the last one wins. From argparse: a word that starts with a dash is no
value, unless it is a negative number or has a space in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from policy.transfer.command import Word
from policy.transfer.flags import SECRET_FLAGS, FlagTable
from policy.transfer.values import JsonValue, Opaque, Sourced, truth

_NEGATIVE = re.compile(r"-\d+$|-\d*\.\d+$")
SECRET = "(not kept)"
MAX_DEPTH = 32


@dataclass(slots=True)
class _Reader:
    table: FlagTable
    flags: dict[str, Sourced] = field(default_factory=dict)
    dotted: dict[str, Sourced] = field(default_factory=dict)
    opaque: list[Opaque] = field(default_factory=list)
    positional: list[Word] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReadFlags:
    """Flags by their canonical name; words that belong to none; flags unknown here that took a word."""

    flags: dict[str, Sourced]
    opaque: tuple[Opaque, ...]
    positional: tuple[Word, ...]
    unsure: tuple[str, ...]
    warnings: tuple[str, ...]


def read_flags(words: Sequence[Word], table: FlagTable) -> ReadFlags:
    """Reads words with the names and kinds of flags in `table`."""
    reader = _Reader(table)
    index = 0
    while index < len(words):
        word = words[index]
        if word.text == "--":
            reader.positional.extend(words[index + 1 :])
            break
        if _name(word.text, table) is None:
            reader.positional.append(word)
            index += 1
        else:
            index += 1 + _read_flag(reader, word, words[index + 1 :])
    _join_dotted(reader)
    return ReadFlags(
        reader.flags,
        tuple(reader.opaque),
        tuple(reader.positional),
        tuple(reader.unsure),
        tuple(reader.warnings),
    )


def _name(text: str, table: FlagTable) -> str | None:
    """The flag as written before `=`, without leading dashes; None for a word that is no flag."""
    if text.startswith("--") and len(text) > 2:
        name = text[2:].split("=", 1)[0]
        return None if " " in name else name
    if text.startswith("-") and len(text) > 1:
        name = text[1:].split("=", 1)[0]
        if name.split(".", 1)[0] in table.short or (len(name) == 2 and name[0] == "O"):
            return name
        return None if _NEGATIVE.match(text) or " " in text else name
    return None


def _read_flag(reader: _Reader, word: Word, following: Sequence[Word]) -> int:
    """Reads one flag and returns how many of the following words belong to it."""
    written = _name(word.text, reader.table) or ""
    _, equals, attached = word.text.partition("=")
    base, dot, keys = written.partition(".")
    name, negated = _canonical(reader.table, base, word.text)
    source = f"{word.source} {word.text.split('=', 1)[0]}"
    if word.text.startswith("-O") and not equals and len(written) == 2:
        _store(reader, "optimization-level", written[1:], source, ())
        return 0
    if equals:
        _store_text(reader, name, keys, dot, attached, source, word.unread)
        return 0
    value_words = _values(reader, name, negated, bool(dot), following)
    if not value_words:
        if dot:
            reader.warnings.append(f"{source} has no value.")
            return 0
        _store(reader, name, not negated, source, word.unread)
        return 0
    if name in reader.table.several and not dot:
        texts: list[JsonValue] = [each.text for each in value_words]
        unread = tuple(missing for each in value_words for missing in each.unread)
        _store(reader, name, texts, source, unread)
    else:
        _store_text(reader, name, keys, dot, value_words[0].text, source, value_words[0].unread)
    return len(value_words)


def _canonical(table: FlagTable, base: str, written: str) -> tuple[str, bool]:
    """The flag's one name, and whether `no-` stands before it."""
    if not written.startswith("--"):
        return table.short.get(base, base), False
    name = base.replace("_", "-")
    if name.startswith("no-") and len(name) > 3 and not table.known(name) and "=" not in written:
        rest = name[3:]
        return table.aliases.get(rest, rest), True
    return table.aliases.get(name, name), False


def _values(
    reader: _Reader, name: str, negated: bool, dotted: bool, following: Sequence[Word]
) -> Sequence[Word]:
    if negated or not following or _is_flag(following[0].text, reader.table):
        return ()
    if name in reader.table.several and not dotted:
        count = 0
        while count < len(following) and not _is_flag(following[count].text, reader.table):
            count += 1
        return following[:count]
    if name in reader.table.booleans:
        # Older releases take the word; argparse's own booleans do not, and leave it to the positional.
        return following[:1] if following[0].text.lower() in ("true", "false") else ()
    if not dotted and not reader.table.known(name):
        reader.unsure.append(name)
    return following[:1]


def _is_flag(text: str, table: FlagTable) -> bool:
    return text == "--" or _name(text, table) is not None


def _store_text(
    reader: _Reader, name: str, keys: str, dot: str, text: str, source: str, unread: tuple[str, ...]
) -> None:
    if dot:
        _store_dotted(reader, name, keys, text, source, unread)
    elif name in reader.table.several:
        _store(reader, name, [text], source, unread)
    elif name in reader.table.booleans and truth(text) is not None:
        _store(reader, name, truth(text), source, unread)
    elif name in reader.table.json:
        _store(reader, name, _json_or_text(reader, name, text, source, unread), source, unread)
    else:
        _store(reader, name, text, source, unread)


def _json_or_text(reader: _Reader, name: str, text: str, source: str, unread: tuple[str, ...]) -> JsonValue:
    try:
        return loads(text)
    except ValueError:
        if not unread:
            reader.warnings.append(f"{source} is not valid JSON; the engine would not start with it.")
            reader.opaque.append(Opaque(name, "its value is not valid JSON", source, fixed=True))
        return text


def loads(text: str) -> JsonValue:
    """JSON with NaN, infinities and nesting deeper than any setting refused, as ValueError."""

    def refuse(word: str) -> JsonValue:
        raise ValueError(f"{word} is not JSON")

    try:
        value: JsonValue = json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not _shallow(value, MAX_DEPTH):
        raise ValueError("nested too deeply")
    return value


def _shallow(value: JsonValue, left: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return left > 0 and all(_shallow(item, left - 1) for item in inner)


def _store(reader: _Reader, name: str, value: JsonValue, source: str, unread: tuple[str, ...]) -> None:
    if not name:
        return
    reader.opaque[:] = [each for each in reader.opaque if each.covers != name or each.source == source]
    if unread:
        reader.flags.pop(name, None)
        reader.opaque.append(Opaque(name, f"its value comes from {', '.join(unread)}", source))
        return
    if name in reader.flags and reader.flags[name].value != value:
        reader.warnings.append(f"{source} repeats a flag; the last value counts.")
    reader.flags[name] = Sourced(SECRET if name in SECRET_FLAGS else value, source)
    _check_abbreviation(reader, name, source)


def _check_abbreviation(reader: _Reader, name: str, source: str) -> None:
    """Argparse takes an unknown flag for a longer one that starts with it, if only one does."""
    if reader.table.known(name):
        return
    for full in sorted(reader.table.decisive):
        if full.startswith(name):
            reason = f"the shortened flag {name} may stand for it"
            reader.opaque.append(Opaque(full, reason, source, fixed=True))


def _store_dotted(
    reader: _Reader, name: str, keys: str, text: str, source: str, unread: tuple[str, ...]
) -> None:
    if unread:
        reader.opaque.append(Opaque(name, f"a part of it comes from {', '.join(unread)}", source))
        return
    appends = keys.endswith("+")
    try:
        value = loads(text)
    except ValueError:
        value = text
    if appends:
        parts: list[JsonValue] = [*text.split(",")]
        value = parts
    path = keys.removesuffix("+").split(".")
    if len(path) > MAX_DEPTH:
        reader.warnings.append(f"{source} is nested too deeply and was left out.")
        return
    known = reader.dotted.get(name)
    root = known.value if known is not None else {}
    if isinstance(root, dict) and not _put(root, path, value):
        reader.warnings.append(f"{source} sets a value that another flag set; the last one counts.")
    reader.dotted[name] = Sourced(root, known.source if known is not None else source)


def _put(root: dict[str, JsonValue], path: list[str], value: JsonValue) -> bool:
    """Puts a value at a path; lists grow, objects merge. False where something else was replaced."""
    node, fresh = root, True
    for key in path[:-1]:
        inner = node.get(key)
        if not isinstance(inner, dict):
            fresh = fresh and key not in node
            inner = {}
            node[key] = inner
        node = inner
    last = node.get(path[-1])
    if isinstance(last, list) and isinstance(value, list):
        node[path[-1]] = [*last, *value]
        return fresh
    if isinstance(last, dict) and isinstance(value, dict):
        return all([_put(last, [key], item) for key, item in value.items()]) and fresh
    fresh = fresh and path[-1] not in node
    node[path[-1]] = value
    return fresh


def _join_dotted(reader: _Reader) -> None:
    for name, found in reader.dotted.items():
        if name in reader.flags:
            reader.warnings.append(
                f"--{name} is given as a whole and in parts; the engine reads the parts alone."
            )
        reader.flags[name] = found
        reader.opaque[:] = [
            each for each in reader.opaque if each.covers != name or "JSON" not in each.reason
        ]
