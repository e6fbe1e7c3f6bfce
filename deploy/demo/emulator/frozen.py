"""Documents that cannot be changed: what the store gives out may be kept and shared by everybody.

``thaw`` makes a copy that may be changed; ``freeze`` makes a frozen copy; ``encoded`` is the JSON of a frozen
document, made once however many lists and watches it goes into.
"""

from __future__ import annotations

import json
from operator import is_
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


_EMPTY = FrozenDict()


def freeze(value: Any, like: Any = None) -> Any:
    """A frozen copy of JSON values. Parts that are frozen already are shared, and so is what is the same in ``like``:
    the versions of one object then hold only what differs between them."""
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, dict):
        old = like if isinstance(like, FrozenDict) else _EMPTY
        made = {key: freeze(each, old.get(key)) for key, each in value.items()}
        if (
            old is like
            and len(made) == len(old)
            and all(key in old and each is old[key] for key, each in made.items())
        ):
            return like
        return FrozenDict(made)
    if isinstance(value, list | tuple):
        before = like if isinstance(like, FrozenList) else ()
        parts = [freeze(each, before[at] if at < len(before) else None) for at, each in enumerate(value)]
        if before is like and len(parts) == len(before) and all(map(is_, parts, before)):
            return like
        return FrozenList(parts)
    return like if type(like) is type(value) and like == value else value


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
