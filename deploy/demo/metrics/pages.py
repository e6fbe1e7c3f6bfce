"""The metrics page of one target, from scrape to scrape: what has not changed costs next to nothing."""

from __future__ import annotations

from collections.abc import Mapping

from deploy.demo.metrics.exposition import Line, Malformed, Said, read_line, read_value
from deploy.demo.metrics.metric import Metric
from deploy.demo.metrics.store import Series, Store, Timeline, TooMany


class Page:
    """What a target exposed last. ``labels`` are those of the target: a sample's own label of the same name is kept
    as `exported_…`."""

    def __init__(self, store: Store, timeline: Timeline, labels: Mapping[str, str]) -> None:
        self.said: dict[tuple[str, str], str] = {}
        self.samples = 0
        self._failed = False  # all has ended, but the page is known
        self._store, self._timeline, self._labels = store, timeline, labels
        self._text = ""
        self._lines: list[str] = []
        self._starts: list[int] = []  # of values
        self._slots: list[Series | None] = []
        self._live: dict[int, Series] = {}
        self._reported: dict[str, Series] = {}

    def take(self, text: str, at: int) -> int:
        """A scrape at ``at`` (unix milliseconds); how many series are new. Raises Malformed and TooMany: the scrape
        has failed then (`fail`)."""
        if text and text == self._text and not self._failed:
            self._timeline.add(at)
            return 0
        lines = text.split("\n")
        changes = self._changes(lines)
        if changes is None:
            return self._take_all(text, lines, at)
        index = self._timeline.add(at)
        for series, value in changes:
            series.set(index, value)
        self._text, self._lines, self._failed = text, lines, False
        return 0

    def fail(self, at: int) -> None:
        """A scrape that failed, or the end of the target: everything has ended."""
        index = self._timeline.add(at)
        for series in self._live.values():
            series.end(index)
        self._failed = True

    def report(self, values: Mapping[str, float]) -> None:
        """Numbers about the last scrape, by name."""
        for name, value in values.items():
            series = self._reported.get(name)
            if series is None:
                series = self._store.series(Metric({**self._labels, "__name__": name}), self._timeline)
            if series is not None:
                self._reported[name] = series
                series.set(self._timeline.last, value)

    def end_report(self) -> None:
        """End the numbers about scrapes."""
        for series in self._reported.values():
            series.end(self._timeline.last)

    def _changes(self, lines: list[str]) -> list[tuple[Series, float]] | None:
        """New values where only values have changed, all of them after a failure; else None."""
        if len(lines) != len(self._lines):
            return None
        found = []
        for place, (before, line) in enumerate(zip(self._lines, lines, strict=True)):
            series = self._slots[place]
            if before == line and (series is None or not self._failed):
                continue
            start = self._starts[place]
            if series is None or before[:start] != line[:start]:
                return None
            if self._failed and not self._timeline.knows(series):
                return None
            try:
                found.append((series, read_value(line[start:])))
            except Malformed:
                return None
        return found

    def _take_all(self, text: str, lines: list[str], at: int) -> int:
        read, said = _read(lines)
        named = [(place, line, self._metric(line.labels)) for place, line in read]
        index = self._timeline.add(at)
        before, known = self._live, self._store.count
        self._forget()
        self._lines, self._text, self._failed, self.said = lines, text, False, said
        self._starts, self._slots = [0] * len(lines), [None] * len(lines)
        try:
            for place, line, metric in named:
                self._place(place, line, metric, index)
        except TooMany:
            self._live = {**before, **self._live}  # `fail` ends them all
            raise
        self.samples = len(named)
        for series in before.values():
            if id(series) not in self._live:
                series.end(index)
        return max(0, self._store.count - known)

    def _place(self, place: int, line: Line, metric: Metric, index: int) -> None:
        if line.at is not None:
            self._store.append(metric.labels, [(line.at, line.value)])
            return
        series = self._store.series(metric, self._timeline)
        if series is not None and id(series) not in self._live:  # of two that are the same the first counts
            series.set(index, line.value)
            self._live[id(series)] = series
            self._slots[place], self._starts[place] = series, line.start

    def _metric(self, labels: dict[str, str]) -> Metric:
        if self._labels.keys().isdisjoint(labels):
            return Metric({**labels, **self._labels})
        found = dict(labels)
        for name in self._labels:
            if found.get(name):
                moved = f"exported_{name}"
                while moved in found or moved in self._labels:
                    moved = f"exported_{moved}"
                found[moved] = found[name]
        return Metric({**found, **self._labels})

    def _forget(self) -> None:
        self._text, self._lines, self._starts, self._slots, self._live = "", [], [], [], {}


def _read(lines: list[str]) -> tuple[list[tuple[int, Line]], dict[tuple[str, str], str]]:
    found: list[tuple[int, Line]] = []
    said: dict[tuple[str, str], str] = {}
    kind = ""
    for place, text in enumerate(lines):
        line = read_line(text, kind)
        if isinstance(line, Line):
            found.append((place, line))
        elif isinstance(line, Said):
            said[line.what, line.name] = line.text
            kind = line.text if line.what == "TYPE" else kind
    return found, said
