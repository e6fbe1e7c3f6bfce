"""The first line of an operation: what it waits for, since when, who can act, what happens if nobody does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from policy.rollout.machine import OUTCOMES, Phase, State
from policy.rollout.wording import capitalised


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """What the line is made of. Times are aware.

    `since` is when the state began (for an outcome: when it ended). `what` completes "waits for …", `who`
    names a person or role that can act (empty: nobody needs to), `until` is when patience ends and `then`
    completes "it …" for that moment ("is aborted"). While held, `finding` is the sentence of what stopped it
    and `next_action` what mends it.
    """

    state: State
    phase: Phase
    now: datetime
    since: datetime
    what: str = ""
    who: str = ""
    until: datetime | None = None
    then: str = ""
    finding: str = ""
    next_action: str = ""


@dataclass(frozen=True, slots=True)
class StatusLine:
    """The answers one by one, and `text` with all of them."""

    what: str
    since: str
    who: str
    otherwise: str
    text: str


def status_line(facts: StatusFacts) -> StatusLine:
    """The line for one operation. Raises ValueError for a time without a zone."""
    for moment in (facts.now, facts.since, facts.until):
        if moment is not None and moment.tzinfo is None:
            raise ValueError(f"a time without a zone: {moment.isoformat()}")
    since = f"since {_clock(facts.since, facts.now)} ({_duration(facts.now - facts.since)})"
    if facts.state in OUTCOMES:
        return _ended(facts)
    what, who, otherwise = _what(facts), _who(facts), _otherwise(facts)
    back = "going back, " if facts.phase is Phase.ABORTING else ""
    actor = who if facts.who else capitalised(who)  # a name keeps its spelling
    text = f"{capitalised(back + what)}, {since}. {actor}. {capitalised(otherwise)}."
    if facts.state is State.HELD:
        reason = facts.finding.rstrip(".") or "no reason was recorded"
        text = f"{capitalised(back + 'held')} {since}: {reason}. {actor}. {capitalised(otherwise)}."
    return StatusLine(what=what, since=since, who=who, otherwise=otherwise, text=text)


def _what(facts: StatusFacts) -> str:
    if facts.state is State.HELD:
        return f"held: {facts.finding.rstrip('.')}" if facts.finding else "held"
    if facts.what:
        return f"waits for {facts.what.rstrip('.')}"
    return "waits for a person" if facts.state is State.WAITING else "works on its next step"


def _who(facts: StatusFacts) -> str:
    if facts.state is State.WORKING:
        return f"{facts.who} can act" if facts.who else "nobody needs to act"
    who = f"{facts.who or 'an operator'} can act"
    if facts.state is State.HELD and facts.next_action:
        return f"{who}: {facts.next_action.rstrip('.')}"
    return who


def _otherwise(facts: StatusFacts) -> str:
    nobody = "if nothing changes" if facts.state is State.WORKING else "if nobody does"
    if facts.until is not None:
        when = _clock(facts.until, facts.now)
        left = facts.until - facts.now
        soon = f"at {when} (in {_duration(left)})" if left > timedelta(0) else f"now (it was due at {when})"
        return f"{nobody}, it {facts.then or 'is held'} {soon}"
    if facts.then:
        return f"{nobody}, it {facts.then}"
    return {
        State.WORKING: "it goes on by itself",
        State.WAITING: "if nobody does, it waits on and no group moves",
        State.HELD: "if nobody does, it stays held and no group moves",
    }[facts.state]


def _ended(facts: StatusFacts) -> StatusLine:
    outcome = {
        State.SUCCEEDED: "succeeded",
        State.ABORTED: "aborted, the old revision serves",
        State.ROLLED_BACK: "rolled back, the old revision serves",
        State.SUPERSEDED: "superseded by another operation",
        State.FAILED: "failed: it went back, and the old revision does not serve",
    }[facts.state]
    when = f"at {_clock(facts.since, facts.now)}"
    who, otherwise = "nobody needs to act", "nothing more happens"
    if facts.state is State.FAILED:
        who = f"{facts.who or 'an operator'} must act"
        otherwise = "if nobody does, the set stays as it is"
    reason = f": {facts.finding.rstrip('.')}" if facts.finding else ""
    text = f"{capitalised(outcome)}, {when}{reason}."
    if facts.state is State.FAILED:
        text += f" {who if facts.who else capitalised(who)}. {capitalised(otherwise)}."
    return StatusLine(what=outcome, since=when, who=who, otherwise=otherwise, text=text)


def _clock(moment: datetime, now: datetime) -> str:
    utc = moment.astimezone(UTC)
    same_day = utc.date() == now.astimezone(UTC).date()
    return f"{utc:%H:%M}" + " UTC" if same_day else f"{utc:%Y-%m-%d %H:%M} UTC"


def _duration(length: timedelta) -> str:
    """The two largest units: "40 s", "14 min", "2 h 5 min", "3 d 4 h". Less than nothing is nothing."""
    seconds = max(0, int(length.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"
