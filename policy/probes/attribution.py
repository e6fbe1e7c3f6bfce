"""What failures follow: one part whatever its peer, one pair though each side serves otherwise, or one connection.

Probes are laid out by the groups and revisions that did their two halves. Every part, pair of revisions and pair of
groups that was seen is a possible cause; the one under which the outcomes are most likely (one rate of failure
inside, one outside) is taken, if Fisher's exact test agrees that it is no chance. Causes that cover exactly the
same probes cannot be told apart by them: then the more is said that is common to all, or that it is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from policy.probes.facts import Finding, FindingKind
from policy.proportions import fisher_more

# Dozens of causes are looked at, so one in a thousand, not one in a hundred.
ALPHA = 0.001
LEAST_FAILURES = 2
# So many failures and nothing else are a state, not an accident.
LEAST_IF_ALL_FAIL = 3

Level: TypeAlias = Literal["group", "role", "revision", "revision-pair", "connection"]


@dataclass(frozen=True, slots=True)
class Sight:
    """One judged probe. Ids and revisions are empty where they were not seen."""

    number: int
    prefill: str
    decode: str
    prefill_revision: str
    decode_revision: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Doubt:
    """Failures that these probes cannot explain, and what would."""

    probes: tuple[int, ...]
    sentence: str
    next_action: str


@dataclass(frozen=True, slots=True)
class Sides:
    """Groups that are known to work without their peer, and those that failed to read from one.

    `serving` answered alone, or finished their half. `unread` are decode groups whose engine counted failed
    transfers and none that succeeded.
    """

    serving: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Cause:
    level: Level
    parts: tuple[str, ...]
    inside: frozenset[int]  # places in the list of sights
    role: str = ""

    @property
    def kind(self) -> FindingKind:
        if self.level == "connection":
            return "wrong-setting"
        return "unsupported-pair" if self.level == "revision-pair" else "faulty-part"


def attribute(sights: Sequence[Sight], sides: Sides) -> tuple[list[Finding], list[Doubt]]:
    """Findings, the plainest first, and what stays unexplained."""
    left = list(sights)
    findings: list[Finding] = []
    while any(sight.failed for sight in left):
        causes = _likeliest(left)
        if not causes:
            return findings, [_unexplained(left)]
        finding = _name(causes, left, sides)
        if finding is None:
            return findings, [_undecided(causes, left)]
        findings.append(finding)
        left = [sight for place, sight in enumerate(left) if place not in causes[0].inside]
    return findings, []


def _likeliest(sights: Sequence[Sight]) -> list[_Cause]:
    """The causes that cover the probes of the best explanation; none where nothing explains anything."""
    failed = sum(sight.failed for sight in sights)
    found = list(_causes(sights))
    if failed == len(sights):
        return [each for each in found if len(each.inside) == failed] if failed >= LEAST_IF_ALL_FAIL else []
    best: frozenset[int] | None = None
    best_fit = -math.inf
    for inside in dict.fromkeys(each.inside for each in found):
        hits = sum(sights[place].failed for place in inside)
        rest = len(sights) - len(inside)
        if hits < LEAST_FAILURES or hits * rest <= (failed - hits) * len(inside):
            continue
        fit = _fit(hits, len(inside)) + _fit(failed - hits, rest)
        if fit > best_fit and fisher_more(hits, len(inside), failed - hits, rest) <= ALPHA:
            best, best_fit = inside, fit
    return [each for each in found if each.inside == best]


def _causes(sights: Sequence[Sight]) -> Iterator[_Cause]:
    """Every cause that some failed probe has part in, the narrowest parts first."""
    failed = [sight for sight in sights if sight.failed]

    def cause(level: Level, parts: tuple[str, ...], places: Iterator[bool], role: str = "") -> _Cause:
        return _Cause(level, parts, frozenset(place for place, hit in enumerate(places) if hit), role)

    for name in sorted({sight.prefill for sight in failed} - {""}):
        yield cause("group", (name,), (sight.prefill == name for sight in sights), "prefill")
    for name in sorted({sight.decode for sight in failed} - {""}):
        yield cause("group", (name,), (sight.decode == name for sight in sights), "decode")
    for name in sorted({sight.prefill_revision for sight in failed} - {""}):
        yield cause("role", (name,), (sight.prefill_revision == name for sight in sights), "prefill")
    for name in sorted({sight.decode_revision for sight in failed} - {""}):
        yield cause("role", (name,), (sight.decode_revision == name for sight in sights), "decode")
    for name in sorted({each for sight in failed for each in _revisions(sight)}):
        yield cause("revision", (name,), (name in _revisions(sight) for sight in sights))
    pairs = {(sight.prefill_revision, sight.decode_revision) for sight in failed if all(_halves(sight))}
    for a, b in sorted(pairs):
        yield cause("revision-pair", (a, b), (_halves(sight) == (a, b) for sight in sights))
    for a, b in sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]}):
        yield cause("revision-pair", (a, b), (_halves(sight) in ((a, b), (b, a)) for sight in sights), "both")
    for a, b in sorted({(sight.prefill, sight.decode) for sight in failed if sight.prefill and sight.decode}):
        yield cause("connection", (a, b), ((sight.prefill, sight.decode) == (a, b) for sight in sights))


def _name(causes: Sequence[_Cause], sights: Sequence[Sight], sides: Sides) -> Finding | None:
    """The finding, if all causes that fit are of one kind, or what is known of the sides leaves one."""
    kinds = {each.kind for each in causes}
    pairs = [each for each in causes if each.level == "revision-pair"]
    across = [each for each in pairs if each.parts[0] != each.parts[1]]
    hit = [sights[place] for place in causes[0].inside]
    counted = f"{sum(sight.failed for sight in hit)} of {len(hit)}"
    if "faulty-part" not in kinds:
        # Two revisions that met in one connection alone: that they differ says more than that it may be stale.
        if len(kinds) == 1 or across:
            return _pair(across or pairs, counted) if pairs else _connection(causes[0], counted)
        return None
    if kinds == {"faulty-part"} and not all(sight.failed for sight in sights):
        whole = [
            each for each in causes if each.level == "revision" and not all(all(_halves(one)) for one in hit)
        ]
        return _part((whole or causes)[0], counted)
    # Answers may not name the prefill group; those that were sent to a named one stand for all of one cause.
    named = [sight for sight in hit if sight.prefill and sight.decode]
    served = bool(named) and all({sight.prefill, sight.decode} <= sides.serving for sight in named)
    unread = bool(named) and all(
        sight.decode in sides.unread and (not sight.prefill or sight.prefill in sides.serving)
        for sight in hit
    )
    if pairs and (served or unread):
        return _pair(across or pairs, counted)
    return None


def _part(cause: _Cause, counted: str) -> Finding:
    (name,) = cause.parts
    what = {
        "group": f"{cause.role} group {name}",
        "role": f"the {cause.role} half of revision {name}",
        "revision": f"revision {name}",
    }[cause.level]
    action = (
        f"Read the log of {name}, delete its group, and probe again."
        if cause.level == "group"
        else f"Abort, and read the logs of revision {name}."
    )
    sentence = f"Probes fail with {what} whatever its peer: {counted}."
    return Finding("faulty-part", f"faulty-{cause.level}", "red", (name,), sentence, action)


def _pair(pairs: Sequence[_Cause], counted: str) -> Finding:
    cause = pairs[0]
    one, other = cause.parts
    if one == other:
        sentence = f"Prefill and decode of revision {one} do not go together: {counted} probes fail, each half works."
        action = "Abort; compare the engine arguments of the two halves (transfer verdict)."
        return Finding("unsupported-pair", "halves-do-not-fit", "red", (one, other), sentence, action)
    how = "in either direction" if cause.role == "both" else f"where {one} prefills for {other}"
    sentence = (
        f"Revisions {one} and {other} do not go together {how}: {counted} probes fail, each serves otherwise."
    )
    action = "Let the router draw one revision for each request, or move over by blue/green."
    return Finding("unsupported-pair", "revisions-do-not-fit", "red", (one, other), sentence, action)


def _connection(cause: _Cause, counted: str) -> Finding:
    prefill, decode = cause.parts
    sentence = f"{decode} cannot read from {prefill}, though both serve with every other group: {counted} probes fail."
    action = f"Restart {decode}: it keeps a stale transfer agent of {prefill}."
    return Finding("wrong-setting", "stale-agent", "red", (decode, prefill), sentence, action)


def _unexplained(sights: Sequence[Sight]) -> Doubt:
    failed = tuple(sight.number for sight in sights if sight.failed)
    sentence = f"{len(failed)} of {len(sights)} probes failed and follow no part and no pair."
    return Doubt(failed, sentence, "Read the answers of the failed probes, and send more.")


def _undecided(causes: Sequence[_Cause], sights: Sequence[Sight]) -> Doubt:
    failed = tuple(sights[place].number for place in sorted(causes[0].inside) if sights[place].failed)
    named = ", ".join(dict.fromkeys(name for each in causes for name in each.parts))
    sentence = f"{len(failed)} probes failed with {named}: a broken part and a pair that does not fit look alike here."
    action = "Ask each half directly, or probe it with another peer."
    return Doubt(failed, sentence, action)


def _fit(hits: int, size: int) -> float:
    """The logarithm of how likely `hits` of `size` are at their own rate."""
    if hits in (0, size):
        return 0.0
    rate = hits / size
    return hits * math.log(rate) + (size - hits) * math.log1p(-rate)


def _halves(sight: Sight) -> tuple[str, str]:
    return sight.prefill_revision, sight.decode_revision


def _revisions(sight: Sight) -> set[str]:
    return set(_halves(sight)) - {""}
