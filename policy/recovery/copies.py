"""A combination as ConfigMaps in its cluster: cut below the size limit of an object, put together again with proof.

The text is canonical JSON. Each set has two places, taken in turn, so that the last two combinations are there. The
first piece of a place carries the index and is written last: a copy that was cut off in writing does not count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from policy.canonical import canonical_json, digest

Json = dict[str, Any]

PLACES = 2
LIMIT = 900_000  # bytes of one piece; the API server takes 1 MiB per object, metadata included
_INDEX, _PIECE = "index", "piece"


class BrokenCopy(ValueError):
    """The pieces are not what the index says."""


def piece_name(namespace: str, name: str, number: int, piece: int) -> str:
    """Name of the ConfigMap of one piece; a namespace has no dot, so the name is unambiguous."""
    first = f"combination-{namespace}.{name}-{number % PLACES}"
    return first if piece == 0 else f"{first}.{piece}"


def split_copy(document: Mapping[str, Any], *, number: int, about: Json, limit: int = LIMIT) -> list[Json]:
    """`data` of each piece, the first one with the index: digest, pieces, number, and what `about` adds to it."""
    text = canonical_json(document).decode()
    pieces = _cut(text, limit)
    index = {**about, "version": 1, "number": number, "pieces": len(pieces), "digest": digest(document)}
    return [
        {_PIECE: piece, **({_INDEX: json.dumps(index, sort_keys=True)} if not position else {})}
        for position, piece in enumerate(pieces)
    ]


def read_index(data: Mapping[str, str]) -> Json:
    """The index of a first piece. Raises BrokenCopy."""
    try:
        index = json.loads(data[_INDEX])
        int(index["pieces"]), int(index["number"]), str(index["digest"])
    except (KeyError, ValueError, TypeError) as error:
        raise BrokenCopy("the first piece carries no readable index") from error
    return dict(index)


def join_copy(pieces: Sequence[Mapping[str, str]]) -> Json:
    """The document of all pieces in order. Raises BrokenCopy where their digest is not the one of the index."""
    index = read_index(pieces[0])
    if len(pieces) != int(index["pieces"]):
        raise BrokenCopy(f"{len(pieces)} pieces of {index['pieces']}")
    try:
        document = json.loads("".join(each[_PIECE] for each in pieces))
    except (KeyError, ValueError) as error:
        raise BrokenCopy("the pieces are no document") from error
    if not isinstance(document, dict) or digest(document) != index["digest"]:
        raise BrokenCopy("the pieces are not those that the index was written for")
    return document


def _cut(text: str, limit: int) -> list[str]:
    """Pieces of at most `limit` bytes in UTF-8; a character is never cut in two."""
    if limit < 4:
        raise ValueError(f"a piece of {limit} bytes may hold no character")
    raw, pieces, start = text.encode(), [], 0
    while start < len(raw):
        end = min(start + limit, len(raw))
        while end < len(raw) and raw[end] & 0xC0 == 0x80:
            end -= 1
        pieces.append(raw[start:end].decode())
        start = end
    return pieces or [""]
