"""Numbers as sentences write them: `46.8 %`, `380 ms`, `14,820`."""

from __future__ import annotations


def percent(part: float) -> str:
    """A part of one in percent. Nothing is rounded to 0 % or 100 % that is not exactly that."""
    value = part * 100.0
    if value == 0.0 or abs(value) < 0.01:
        return "0 %" if value == 0.0 else "less than 0.01 %"
    text = _short(value, 1 if abs(value) >= 1.0 else 2)
    return "more than 99.9 %" if text == "100" and part < 1.0 else f"{text} %"


def seconds(length: float) -> str:
    """A length of time in the unit that reads best: `6.2 ms`, `380 ms`, `1.4 s`, `12 min`, `3 h`."""
    if abs(length) < 1.0:
        return f"{_short(length * 1000.0, 0 if abs(length) >= 0.01 else 1)} ms"
    if abs(length) < 120.0:
        return f"{_short(length, 1)} s"
    return f"{_short(length / 60.0, 0)} min" if abs(length) < 7200.0 else f"{_short(length / 3600.0, 1)} h"


def whole(number: float) -> str:
    """A count with thousands apart; a mean of counts with one digit behind the point."""
    return _short(number, 1)


def _short(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
