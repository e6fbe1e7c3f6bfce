"""What was measured of the KV link against what is expected of it: bytes per token, time per transfer.

Expected needs facts: of which model the KV is, which dtype it has, which link it moves over. Where one is missing the
answer is `unknown` and says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from policy.figures import seconds
from policy.transfer.arguments import EngineArguments
from policy.transfer.bytes import UnknownSize, bytes_per_token, explain_bytes
from policy.transfer.links import LINKS
from policy.transfer.named_models import model_named
from policy.transfer.transfer_time import transfer_time
from policy.transfer.values import whole

BytesState: TypeAlias = Literal[
    "as-expected", "wide-dtype", "all-ranks-read", "off", "unknown", "not-measured"
]
TimeState: TypeAlias = Literal["as-expected", "slow", "faster-than-the-link", "unknown", "not-measured"]


@dataclass(frozen=True, slots=True)
class ObservedBytes:
    """KV bytes per transferred prompt token, over all ranks. `expected` is None with the facts in `missing`."""

    state: BytesState
    sentence: str
    measured: float | None = None
    expected: float | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedTime:
    """Mean seconds of one transfer. `floor` is what the link's peak allows at least, `low` to `high` what to plan
    with; `rate` is bytes per second seen, None where the size of a transfer is not known."""

    state: TimeState
    sentence: str
    measured: float | None = None
    floor: float | None = None
    low: float | None = None
    high: float | None = None
    rate: float | None = None
    missing: tuple[str, ...] = ()


def observe_bytes(measured: float | None, decode: EngineArguments | None) -> ObservedBytes:
    """Judge measured bytes per token. `decode` is how the engine that reads is started, None where nobody saw it."""
    if measured is None:
        return ObservedBytes("not-measured", "No KV bytes were measured.")
    missing: list[str] = []
    if decode is None:
        missing.append("how the decode engine is started")
        return ObservedBytes("unknown", _unknown(missing), measured, missing=tuple(missing))
    name = decode.hidden("model") is None and decode.value("model")
    model = model_named(name) if isinstance(name, str) else None
    if model is None:
        missing.append(f"the geometry of {name}" if name else "which model is served")
    cache = _read(decode, "kv-cache-dtype", "auto", missing)
    ranks = whole(_read(decode, "tensor-parallel-size", "1", missing)) or 1
    if model is None or missing:
        return ObservedBytes("unknown", _unknown(missing), measured, missing=tuple(missing))
    try:
        meaning, sentence = explain_bytes(measured, model, cache_dtype=cache, decode_tp=ranks)
        expected = float(bytes_per_token(model, cache_dtype=cache, drafts=False))
    except UnknownSize as error:
        said = (str(error),)
        return ObservedBytes("unknown", _unknown(said), measured, missing=said)
    if meaning == "not-evaluable":
        return ObservedBytes("not-measured", sentence, measured, expected)
    return ObservedBytes(meaning, sentence, measured, expected)


def observe_time(measured: float | None, *, size: float | None, link: str, nics: int = 1) -> ObservedTime:
    """Judge the mean time of a transfer of `size` bytes over a link of LINKS (empty: not known).

    The range is for one read at a time: several at once share the link, so `slow` may be load and not a fault.
    """
    if measured is None:
        return ObservedTime("not-measured", "No transfer times were measured.")
    rate = size / measured if size and measured > 0 else None
    missing = [
        *(["which link KV moves over (link of the pool)"] if link not in LINKS else []),
        *(["bytes per transfer"] if not size else []),
    ]
    if missing or not size:
        return ObservedTime("unknown", _unknown(missing), measured, rate=rate, missing=tuple(missing))
    expected = transfer_time(round(size), LINKS[link], nics=nics)
    numbers = (measured, expected.floor, expected.low, expected.high, rate)
    told = f"A transfer takes {seconds(measured)} on average; {LINKS[link].label} gives {seconds(expected.low)} to "
    told += f"{seconds(expected.high)} for one read at a time"
    if measured < expected.floor:
        said = f"{told} and {seconds(expected.floor)} at least: KV does not move over that link."
        return ObservedTime("faster-than-the-link", said, *numbers)
    if measured > expected.high:
        return ObservedTime("slow", f"{told}: reads share the link, or it is not used as set.", *numbers)
    return ObservedTime("as-expected", f"{told}.", *numbers)


def _read(engine: EngineArguments, flag: str, usual: str, missing: list[str]) -> str:
    hidden = engine.hidden(flag)
    if hidden is not None:
        missing.append(f"--{flag} ({hidden})")
    value = engine.value(flag)
    return usual if value is None else str(value)


def _unknown(missing: list[str] | tuple[str, ...]) -> str:
    return f"What to expect is not known: {'; '.join(missing)}."
