"""What every request came to: a bounded list of rows, and counts that are never dropped."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

OBJECTIVE_HEADER = "x-llm-d-inference-objective"
FAIRNESS_HEADER = "x-llm-d-inference-fairness-id"
ROWS = 200_000
_OBJECTIVES_KEPT = 200
CUT = 0  # status of a request that got no answer: its pod went away, or it hung up


@dataclass(frozen=True, slots=True)
class Row:
    """One request as the engine saw it that was asked (the decode engine of a disaggregated one).

    ``prefill`` and ``prefill_revision`` are empty where no prefill engine was asked. ``kv`` says where the prompt's
    KV came from: transferred, local (computed here), failed, or "" when it did not get so far. ``mixed`` = prefill
    and decode were of different revisions. ``status`` 0 = cut off. ``seconds`` are real. ``time`` is unix time.
    """

    seq: int
    time: float
    request_id: str
    set: str
    role: str
    decode: str
    decode_revision: str
    prefill: str
    prefill_revision: str
    mixed: bool
    objective: str
    fairness_id: str
    asked_revision: str
    status: int
    kv: str
    prompt_tokens: int
    tokens: int
    corrupted: bool
    seconds: float
    error: str


class Books:
    """Rows of the last requests and a summary of all since :meth:`reset`. ``seq`` never starts again."""

    def __init__(self, rows: int = ROWS) -> None:
        self._rows: deque[Row] = deque(maxlen=rows)
        self._next = 1
        self.reset()

    def reset(self) -> None:
        """Forget rows and counts."""
        self._rows.clear()
        self._forgotten = self._next - 1
        self._since = time.time()
        self._counts: Counter[tuple[str, str, str, str, int, str]] = Counter()
        self._wrong: Counter[tuple[str, str, str, str, int, str]] = Counter()
        self._objectives: Counter[tuple[str, int]] = Counter()
        self._mixed: Counter[str] = Counter()
        self._legs = 0

    def enter(self, **fields: Any) -> Row:
        """Add a row; fields of :class:`Row` without seq and time."""
        row = Row(seq=self._next, time=time.time(), **fields)
        self._next += 1
        self._rows.append(row)
        key = (row.set, row.role, row.prefill_revision, row.decode_revision, row.status, row.kv)
        self._counts[key] += 1
        self._wrong[key] += row.corrupted
        objective = (row.objective, row.status)
        if objective in self._objectives or len(self._objectives) < _OBJECTIVES_KEPT:
            self._objectives[objective] += 1
        if row.mixed:
            self._mixed["all"] += 1
            self._mixed["ok"] += row.status == 200
            self._mixed["corrupted"] += row.corrupted
        return row

    def count_leg(self) -> None:
        """A prefill engine served its half of a request whose row is the decode engine's."""
        self._legs += 1

    def page(self, since: int, limit: int) -> dict[str, Any]:
        """Rows after sequence number ``since``, oldest first; ``missed`` were dropped before they could be read."""
        first = self._rows[0].seq if self._rows else self._next
        skip = max(0, since + 1 - first)
        rows = [asdict(row) for row in islice(self._rows, skip, skip + limit)]
        last = rows[-1]["seq"] if rows else max(since, first - 1)
        missed = max(0, first - 1 - max(since, self._forgotten))
        return {"rows": rows, "next": last, "last": self._next - 1, "missed": missed}

    def summary(self) -> dict[str, Any]:
        """Counts by set, revisions, status; all requests since the reset."""
        names = ("set", "role", "prefill_revision", "decode_revision", "status", "kv")
        pairs = [
            {**dict(zip(names, key, strict=True)), "count": count, "corrupted": self._wrong[key]}
            for key, count in sorted(self._counts.items())
        ]
        statuses: Counter[str] = Counter()
        for key, count in self._counts.items():
            statuses[str(key[4])] += count
        return {
            "since": self._since,
            "requests": sum(self._counts.values()),
            "corrupted": sum(self._wrong.values()),
            "by_status": dict(statuses),
            "by_pair": pairs,
            "by_objective": [
                {"objective": name, "status": status, "count": count}
                for (name, status), count in sorted(self._objectives.items())
            ],
            "mixed": {name: self._mixed[name] for name in ("all", "ok", "corrupted")},
            "prefill_legs": self._legs,
        }
