"""Samples in memory.

All series of a target are scraped at the same moments, and most keep their value from one scrape to the next. So the
moments are stored once for a target (its timeline), and a series stores only when its value changed or when it ended.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping

from deploy.demo.metrics.metric import Metric


class Timeline:
    """Moments in unix milliseconds, by index. An index stays the same when old moments are dropped. ``stored`` counts
    the changes that its series store."""

    __slots__ = ("_times", "_base", "_found", "series", "stored")

    def __init__(self) -> None:
        self._times = array("q")
        self._base = 0
        self._found: tuple[int, int] = (-1, -1)
        self.series: dict[frozenset[tuple[str, str]], Series] = {}
        self.stored = 0

    def add(self, at: int) -> int:
        """A further moment, later than all before (it is moved by what is missing); its index."""
        if self._times and at <= self._times[-1]:
            at = self._times[-1] + 1
        self._times.append(at)
        self._found = (-1, -1)
        return self.last

    @property
    def last(self) -> int:
        """The index of the newest moment; one less than the oldest's where there is none."""
        return self._base + len(self._times) - 1

    @property
    def oldest(self) -> int | None:
        """The oldest moment that is kept."""
        return self._times[0] if self._times else None

    def time(self, index: int) -> int:
        """The moment of an index that is kept."""
        return self._times[index - self._base]

    def until(self, at: int) -> int:
        """The index of the newest moment that is not after ``at``; less than any index where there is none."""
        if self._found[0] != at:
            self._found = (at, self._base + bisect_right(self._times, at) - 1)
        return self._found[1]

    def after(self, at: int) -> int:
        """The index of the oldest moment after ``at``."""
        return self._base + bisect_right(self._times, at)

    def has(self, index: int) -> bool:
        """Whether there is a moment of this index."""
        return self._base <= index <= self.last

    def knows(self, series: Series) -> bool:
        """Whether a series is still one of this timeline's."""
        return self.series.get(series.metric.key) is series

    def drop_before(self, at: int) -> None:
        """Forget moments before ``at``, what series stored for them, and series that had ended by then."""
        count = bisect_left(self._times, at)
        if not count:
            return
        del self._times[:count]
        self._base += count
        self._found = (-1, -1)
        for series in list(self.series.values()):
            self.stored -= series.forget(self._base)
            if series.ended_before(self._base) or not self._times:
                self.stored -= series.stored
                del self.series[series.metric.key]


class Series:
    """The values of one metric over a timeline. A value holds until the next one, or until the series ended."""

    __slots__ = ("metric", "timeline", "_marks", "_values")

    def __init__(self, metric: Metric, timeline: Timeline) -> None:
        self.metric = metric
        self.timeline = timeline
        # Twice the index at which a value begins; one more where the series ended there.
        self._marks = array("q")
        self._values = array("d")

    @property
    def stored(self) -> int:
        """How many changes it stores."""
        return len(self._marks)

    def set(self, index: int, value: float) -> None:
        """The value from this index on; of two for the same index the first counts."""
        if self._marks:
            mark = self._marks[-1]
            if mark >> 1 >= index or mark == mark & ~1 and self._values[-1] == value:
                return
        self._store(2 * index, value)

    def end(self, index: int) -> None:
        """From this index on there is nothing."""
        if self._marks and not self._marks[-1] & 1:
            self._store(2 * index + 1, 0.0)

    def _store(self, mark: int, value: float) -> None:
        self._marks.append(mark)
        self._values.append(value)
        self.timeline.stored += 1

    def at(self, index: int) -> float | None:
        """The value at an index of the timeline."""
        place = bisect_right(self._marks, 2 * index + 1) - 1
        return None if place < 0 or self._marks[place] & 1 else self._values[place]

    def runs(self, first: int, last: int) -> list[tuple[int, int, float]]:
        """(from, to, value) between two indexes, both included, oldest first."""
        marks, found = self._marks, []
        place = max(0, bisect_right(marks, 2 * first + 1) - 1)
        while place < len(marks) and marks[place] >> 1 <= last:
            mark = marks[place]
            place += 1
            if not mark & 1:
                end = (marks[place] >> 1) - 1 if place < len(marks) else last
                run = (max(first, mark >> 1), min(last, end))
                if run[0] <= run[1]:
                    found.append((*run, self._values[place - 1]))
        return found

    def forget(self, base: int) -> int:
        """Drop what no index from ``base`` on needs; how many changes that were."""
        count = max(0, bisect_right(self._marks, 2 * base + 1) - 1)
        del self._marks[:count]
        del self._values[:count]
        return count

    def ended_before(self, base: int) -> bool:
        """Whether it ended by this index and did not come back."""
        return len(self._marks) == 1 and bool(self._marks[0] & 1) and self._marks[0] >> 1 <= base


class Window:
    """The samples of a series within a range; never empty."""

    __slots__ = ("series", "runs", "count")

    def __init__(self, series: Series, runs: list[tuple[int, int, float]]) -> None:
        self.series = series
        self.runs = runs
        self.count = sum(last - first + 1 for first, last, _ in runs)

    @property
    def first_at(self) -> int:
        """The moment of the first sample."""
        return self.series.timeline.time(self.runs[0][0])

    @property
    def last_at(self) -> int:
        """The moment of the last sample."""
        return self.series.timeline.time(self.runs[-1][1])

    def points(self) -> Iterator[tuple[int, float]]:
        """(moment, value), oldest first."""
        time = self.series.timeline.time
        for first, last, value in self.runs:
            for index in range(first, last + 1):
                yield time(index), value


class Store:
    """All series, by name in the order of their first sample.

    ``keep_s`` seconds of samples are kept, less where more than ``most`` changes of values would be stored, and no more
    than ``most_series`` series at a time.
    """

    def __init__(self, *, keep_s: float = 7200, most: int = 5_000_000, most_series: int = 200_000) -> None:
        self.keep_s, self.most, self.most_series = keep_s, most, most_series
        self.names: dict[str, dict[frozenset[tuple[str, str]], Series]] = {}
        self.count = 0
        self._timelines: dict[object, Timeline] = {}

    def timeline(self, key: object) -> Timeline:
        """The timeline of a target, by what it is known by: a target that comes back goes on where it ended."""
        return self._timelines.setdefault(key, Timeline())

    def series(self, metric: Metric, timeline: Timeline) -> Series | None:
        """The series of a metric on a timeline, made where it is missing; None where another timeline has it.

        Raises TooMany.
        """
        named = self.names.setdefault(metric.name, {})
        found = named.get(metric.key)
        if found is None:
            if self.count >= self.most_series:
                raise TooMany(f"more than {self.most_series} series")
            found = named[metric.key] = timeline.series[metric.key] = Series(metric, timeline)
            self.count += 1
        return found if found.timeline is timeline else None

    def append(self, labels: Mapping[str, str], points: Iterable[tuple[int, float | None]]) -> None:
        """Samples of a metric that brings its own moments (unix milliseconds, oldest first); None: it ended. What is
        not newer than its newest sample is left out. Raises TooMany."""
        metric = Metric(labels)
        timeline = self.timeline(("own", metric.key))
        series = self.series(metric, timeline)
        if series is None:
            return
        for at, value in points:
            if timeline.has(timeline.last) and at <= timeline.time(timeline.last):
                continue
            index = timeline.add(at)
            if value is None:
                series.end(index)
            else:
                series.set(index, value)

    def stored(self) -> int:
        """Changes of values that are stored now."""
        return sum(timeline.stored for timeline in self._timelines.values())

    def tidy(self, now: int) -> Iterator[None]:
        """Drop what is too old or too much at ``now`` (unix milliseconds), one timeline at a time."""
        horizon = now - round(1000 * self.keep_s)
        yield from self._drop_before(horizon)
        oldest = min(
            (at for line in self._timelines.values() if (at := line.oldest) is not None), default=now
        )
        horizon = max(horizon, oldest)
        while self.stored() > self.most and now - horizon > 1000:
            horizon += (now - horizon) // 5
            yield from self._drop_before(horizon)

    def _drop_before(self, horizon: int) -> Iterator[None]:
        for key, timeline in list(self._timelines.items()):
            before = list(timeline.series.items())
            timeline.drop_before(horizon)
            if len(before) != len(timeline.series):
                self._remove(series for one, series in before if one not in timeline.series)
            if not timeline.series and not timeline.has(timeline.last):
                self._timelines.pop(key, None)
            yield

    def _remove(self, gone: Iterable[Series]) -> None:
        for series in gone:
            named = self.names[series.metric.name]
            del named[series.metric.key]
            self.count -= 1
            if not named:
                del self.names[series.metric.name]


class TooMany(ValueError):
    """There are as many series as are kept."""
