"""A metric source that is told what it answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from controlplane.metrics.measured import Measured

Json = dict[str, Any]


class Told:
    """Stands in for a client and for `measure_all`: it gives the numbers that are asked for, and `asked` keeps what
    was. A number without a revision is of all."""

    def __init__(self, *numbers: Measured, at: float) -> None:
        self.numbers, self.asked, self.at = list(numbers), list[Json](), at

    def now(self) -> float:
        """A clock that never says the same twice after a question."""
        return self.at + len(self.asked)

    def close(self) -> None:
        """Nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def measure_all(self, client: Any, source: Any, names: Iterable[str], **asked: Any) -> list[Measured]:
        """The numbers of these names and revisions; of all where no revision is asked for."""
        wanted = list(names)
        self.asked.append({"names": wanted, **asked})
        labels = {each.revision for each in asked.get("revisions", ())}
        return [
            one
            for one in self.numbers
            if one.name in wanted and (not labels or not one.revision or one.revision in labels)
        ]
