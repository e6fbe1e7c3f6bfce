"""Two readings of one factor: equal, different or not known, and what is missing to tell."""

from __future__ import annotations

from policy.transfer import factors, readings
from policy.transfer.factors import HashFactor
from policy.transfer.facts import EngineFacts
from policy.transfer.findings import Factor, MissingFact, State
from policy.transfer.readings import Reading
from policy.transfer.sameness import SIDES, Sameness
from policy.transfer.values import JsonValue, Side

# `auto` stays `auto` or becomes a quantised kind; it never becomes one of these strings.
_PLAIN_CACHE = frozenset({"bfloat16", "float16", "half", "float32"})


def compare_factor(
    id: str, label: str, prefill: Reading, decode: Reading, same: Sameness
) -> tuple[Factor, tuple[MissingFact, ...]]:
    """The factor's state, and the facts that are missing where it is not known."""
    state, because, missing = _state(id, label, prefill, decode, same)
    if state == "unknown" and same.identical:
        state, because, missing = "equal", "everything on both sides is the same", ()
    return Factor(id, label, state, prefill.shown(), decode.shown(), because), missing


def compare_hashed(
    factor: HashFactor, prefill: EngineFacts, decode: EngineFacts, same: Sameness
) -> tuple[Factor, tuple[MissingFact, ...]]:
    """One factor of the compatibility hash. Equal hashes in both logs prove every factor that is not seen."""
    read = readings.HASHED[factor.id]
    found, missing = compare_factor(factor.id, factor.label, read(prefill), read(decode), same)
    if factor.id == factors.VERSION:
        found, missing = _version(found, missing, prefill, decode, same)
    if found.state == "unknown" and _same_hash(prefill, decode):
        because = "the compatibility hash in both logs is the same"
        return Factor(found.id, found.label, "equal", found.prefill, found.decode, because), ()
    return found, missing


def _same_hash(prefill: EngineFacts, decode: EngineFacts) -> bool:
    one = prefill.live.compatibility_hash
    return one is not None and one == decode.live.compatibility_hash


def _version(
    found: Factor, missing: tuple[MissingFact, ...], prefill: EngineFacts, decode: EngineFacts, same: Sameness
) -> tuple[Factor, tuple[MissingFact, ...]]:
    """Where nobody could ask: equal bits prove equal versions, and tags of two releases prove the opposite."""
    build = same.states[readings.BUILD]
    if found.state != "unknown":
        return found, missing
    if build == "unknown":
        return found, same.missing[readings.BUILD]
    sides = [readings.version(facts) for facts in (prefill, decode)]
    tagged = [readings.tagged_version(facts) for facts in (prefill, decode)]
    shown = [
        (side if side.known or tag is None else tag).shown() for side, tag in zip(sides, tagged, strict=True)
    ]
    because = "both run the same image digest" if build == "equal" else "the image tags name two releases"
    return Factor(found.id, found.label, build, shown[0], shown[1], because), ()


def _state(
    id: str, label: str, prefill: Reading, decode: Reading, same: Sameness
) -> tuple[State, str, tuple[MissingFact, ...]]:
    if prefill.known and decode.known:
        if isinstance(prefill.value, dict) != isinstance(decode.value, dict):
            # An override beside a config.json, or a draft beside none.
            return _mixed(id, label, prefill, decode)
        return ("equal" if _alike(prefill.value, decode.value) else "different"), "", ()
    if id == factors.CACHE_DTYPE and _never_equal(prefill, decode):
        return "different", "auto never becomes this name", ()
    if prefill.depends is not None and decode.depends is not None:
        return _left_to_engine(id, label, prefill, decode, same)
    return "unknown", "", _missing(id, label, prefill, decode)


def _mixed(
    id: str, label: str, prefill: Reading, decode: Reading
) -> tuple[State, str, tuple[MissingFact, ...]]:
    if id != factors.GEOMETRY:
        return "different", "", ()
    fact = MissingFact("both", id, f"{label} with the overrides applied", "the engine's log at start")
    return "unknown", "", (fact,)


def _alike(one: JsonValue, other: JsonValue) -> bool:
    return one is other or (type(one) is type(other) and one == other) or str(one) == str(other)


def _never_equal(prefill: Reading, decode: Reading) -> bool:
    for one, other in ((prefill, decode), (decode, prefill)):
        if not one.known and one.depends is not None and other.known and other.value in _PLAIN_CACHE:
            return True
    return False


def _left_to_engine(
    id: str, label: str, prefill: Reading, decode: Reading, same: Sameness
) -> tuple[State, str, tuple[MissingFact, ...]]:
    depends = sorted((prefill.depends or frozenset()) | (decode.depends or frozenset()))
    states = {name: same.states[name] for name in depends}
    if all(state == "equal" for state in states.values()):
        return "equal", f"left to the engine on both sides, with the same {' and '.join(depends)}", ()
    if "different" in states.values():
        return "unknown", "", _missing(id, label, prefill, decode)
    open_facts = [
        fact for name, state in states.items() if state == "unknown" for fact in same.missing.get(name, ())
    ]
    return "unknown", "", tuple(open_facts) or _missing(id, label, prefill, decode)


def _missing(id: str, label: str, prefill: Reading, decode: Reading) -> tuple[MissingFact, ...]:
    sides: list[tuple[Side, Reading]] = list(zip(SIDES, (prefill, decode), strict=True))
    return tuple(
        MissingFact(
            side, id, label if reading.depends is not None else f"{label} ({reading.source})", reading.where
        )
        for side, reading in sides
        if not reading.known
    )
