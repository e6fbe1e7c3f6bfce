"""Documents that cannot be changed: what the store gives out may be kept and shared by everybody.

``thaw`` makes a copy that may be changed; ``freeze`` makes a frozen copy; ``encoded`` is the JSON of a frozen
document, made once however many lists and watches it goes into.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

Doc = dict[str, Any]


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError("a stored document cannot be changed; thaw() gives a copy that can")


class FrozenList(list[Any]):
    """A list that refuses every change."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = extend = insert = _refuse
    pop = remove = clear = sort = reverse = _refuse


class FrozenDict(dict[str, Any]):
    """A dict that refuses every change."""

    __slots__ = ("_json",)
    _json: bytes
    __setitem__ = __delitem__ = __ior__ = pop = popitem = clear = update = setdefault = _refuse


def freeze(value: Any) -> Any:
    """A frozen copy of JSON values; parts that are frozen already are shared."""
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, dict):
        return FrozenDict({key: freeze(each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return FrozenList([freeze(each) for each in value])
    return value


def thaw(value: Any) -> Any:
    """A copy of plain dicts and lists."""
    if isinstance(value, dict):
        return {key: thaw(each) if isinstance(each, dict | list) else each for key, each in value.items()}
    if isinstance(value, list):
        return [thaw(each) if isinstance(each, dict | list) else each for each in value]
    return value


def encoded(document: Doc) -> bytes:
    """The JSON of a document; kept with it where it is frozen."""
    if not isinstance(document, FrozenDict):
        return json.dumps(document, separators=(",", ":")).encode()
    try:
        return document._json
    except AttributeError:
        document._json = json.dumps(document, separators=(",", ":")).encode()
        return document._json
