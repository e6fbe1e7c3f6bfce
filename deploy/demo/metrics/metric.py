"""A set of labels that names a series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

NAME = "__name__"


class Metric:
    """Labels (never changed, none with an empty value) and their hashable ``key``. Two metrics are the same where their
    keys are equal."""

    __slots__ = ("labels", "key", "_nameless")

    def __init__(self, labels: Mapping[str, str]) -> None:
        there = all(labels.values())
        self.labels = dict(labels) if there else {name: value for name, value in labels.items() if value}
        self.key = frozenset(self.labels.items())
        self._nameless: Metric | None = None

    def __repr__(self) -> str:
        return f"Metric({self.labels})"

    @property
    def name(self) -> str:
        """The metric's name, or an empty string."""
        return self.labels.get(NAME, "")

    def nameless(self) -> Metric:
        """The same without a name; one object for all who ask, so that its key is made once."""
        if self._nameless is None:
            self._nameless = self.without((NAME,)) if NAME in self.labels else self
        return self._nameless

    def without(self, names: Iterable[str]) -> Metric:
        """The same without some labels."""
        gone = frozenset(names)
        return Metric({name: value for name, value in self.labels.items() if name not in gone})

    def only(self, names: Iterable[str]) -> Metric:
        """Of the labels only these."""
        return Metric({name: self.labels.get(name, "") for name in names})

    def replaced(self, changes: Mapping[str, str]) -> Metric:
        """The same with some labels set, or removed where the value is empty."""
        return Metric({**self.labels, **changes})

    def text(self) -> str:
        """As error messages show it."""
        pairs = sorted((name, value) for name, value in self.labels.items() if name != NAME)
        inside = ", ".join(f"{name}={quoted(value)}" for name, value in pairs)
        return f"{self.name}{{{inside}}}" if inside or not self.name else self.name


EMPTY = Metric({})


def quoted(text: str) -> str:
    """A string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
