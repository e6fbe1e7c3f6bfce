"""What pods exposed over time, told relative to now, in a namespace of its own in the shared Prometheus."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from controlplane.metrics.asked import Incarnation
from controlplane.metrics.client import Prometheus
from controlplane.metrics.measured import Measured
from controlplane.metrics.reading import measure_all
from controlplane.metrics.source import Source
from tests.controlplane.metrics.real import STALE, RealPrometheus, cumulative

EVERY = 15  # seconds between scrapes
WINDOW = 120
SET = "chat"
ROUTER = "chat-epp"


class Story:
    """Series are told first and written by the first question. Times are seconds before now, as positive
    numbers: `since=300` means that a pod was first scraped five minutes ago."""

    def __init__(self, server: RealPrometheus, client: Prometheus) -> None:
        self.server, self.client = server, client
        self.namespace = f"n-{uuid.uuid4().hex[:12]}"
        self.now = float(int(time.time()))
        self.told: list[tuple[dict[str, str], list[tuple[float, float]]]] = []
        self.rename: Mapping[str, str] = {}
        self.prefix = ""

    def series(self, name: str, points: Mapping[float, float], /, **labels: str) -> None:
        """Samples by age in seconds, of any metric."""
        named = {self.rename.get(key, key): value for key, value in labels.items() if value}
        place = {self.rename.get("namespace", "namespace"): self.namespace}
        stored = {"__name__": f"{self.prefix}{name}", **place, **named}
        times = [(self.now - age, value) for age, value in sorted(points.items(), reverse=True)]
        self.told.append((stored, times))

    def scraped(
        self,
        name: str,
        value: Callable[[float], float],
        /,
        *,
        since: float,
        until: float = 0,
        ends: bool = False,
        **labels: str,
    ) -> None:
        """A sample at every scrape between two ages; `value` gets the age. `ends`: it was seen to end."""
        ages = [age for age in _scrapes(since, until)]
        points = {age: value(age) for age in ages}
        if ends:
            points[max(0.0, until - EVERY)] = STALE
        self.series(name, points, **labels)

    def pod(
        self,
        pod: str,
        role: str,
        revision: str,
        *,
        since: float,
        until: float = 0,
        ends: bool = False,
        anchor: str = "vllm:num_requests_running",
        **more: str,
    ) -> Callable[..., None]:
        """A pod that is scraped; gives a function that tells a further series of it, as `scraped` does."""
        labels = {"pod": pod, "role": role, "revision": revision, "set": SET, "slice": "0"}
        labels |= {"instance": f"{pod}:8000"} | more

        def also(name: str, value: Callable[[float], float] | float, /, **extra: Any) -> None:
            times = {"since": since, "until": until, "ends": ends}
            times |= {key: extra.pop(key) for key in ("since", "until", "ends") if key in extra}
            told = value if callable(value) else lambda _: float(value)
            self.scraped(name, told, **times, **{**labels, **extra})

        if anchor:
            also(anchor, 1)
        return also

    def router(
        self, *, since: float, pod: str = f"{ROUTER}-7d9f-abcde", anchor: str = "llm_d_epp_info"
    ) -> Any:
        """A router that is scraped; gives a function as `pod` does."""

        def also(name: str, value: Callable[[float], float] | float, /, **extra: Any) -> None:
            times = {"since": extra.pop("since", since), "until": extra.pop("until", 0)}
            told = value if callable(value) else lambda _: float(value)
            self.scraped(name, told, **times, **{"pod": pod, "instance": f"{pod}:9090", **extra})

        also(anchor, 1)
        return also

    def write(self) -> None:
        """Store what was told since the last time."""
        if self.told:
            self.server.write(self.told)
            self.told = []

    def measure(
        self,
        name: str,
        *,
        source: Source | None = None,
        began: Mapping[str, float] | None = None,
        **more: Any,
    ) -> list[Measured]:
        """One named number now. `began` gives the revisions and their ages in seconds."""
        return self.measure_all([name], source=source, began=began, **more)

    def measure_all(
        self,
        names: Sequence[str],
        *,
        source: Source | None = None,
        began: Mapping[str, float] | None = None,
        **more: Any,
    ) -> list[Measured]:
        """Several named numbers now."""
        self.write()
        began = {"aaaa1111": 3600.0} if began is None else began
        asked: dict[str, Any] = {
            "namespace": self.namespace,
            "set": SET,
            "router": ROUTER,
            "window_s": WINDOW,
            "now": self.now,
            "revisions": [self.incarnation(label, age) for label, age in began.items()],
        }
        return measure_all(self.client, source or Source(), names, **(asked | more))

    def incarnation(self, revision: str, age: float, version: str = "") -> Incarnation:
        """A revision that began so long ago."""
        return Incarnation(revision, self.now - age, version)

    def one(self, name: str, **more: Any) -> Measured:
        """The same where there is just one number."""
        found = self.measure(name, **more)
        assert len(found) == 1, found
        return found[0]


def histogram(
    also: Callable[..., None],
    name: str,
    bounds: Sequence[float],
    counts: Callable[[float], Sequence[float]],
    total: Callable[[float], float],
    **labels: Any,
) -> None:
    """Tell a histogram of a pod: counts per bucket and the sum of observations, both by age."""
    for le in cumulative(bounds, [0.0] * (len(bounds) + 1)):
        also(f"{name}_bucket", lambda age, le=le: cumulative(bounds, counts(age))[le], le=le, **labels)
    also(f"{name}_count", lambda age: float(sum(counts(age))), **labels)
    also(f"{name}_sum", total, **labels)


def growing(per_s: float, *, since: float, first: float = 0.0) -> Callable[[float], float]:
    """A counter that was `first` when it was first seen, and grows evenly."""
    return lambda age: first + per_s * (since - age)


def _scrapes(since: float, until: float) -> list[float]:
    found, age = [], float(since)
    while age >= until:
        found.append(age)
        age -= EVERY
    return found
