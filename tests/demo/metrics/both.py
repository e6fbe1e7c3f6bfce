"""The same samples and the same questions for a real Prometheus and for ours; answers must agree."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import urllib3

from controlplane.metrics.client import Prometheus
from deploy.demo.metrics.server import MetricSource
from tests.controlplane.metrics.real import STALE, Point, RealPrometheus

Json = dict[str, Any]
Told = Iterable[tuple[Mapping[str, str], Sequence[Point]]]
# Both compute with the same doubles; sums are added up in another order.
CLOSE = 1e-9


class Both:
    """Looks like a `RealPrometheus` to a `Story`, and compares like a judge."""

    def __init__(self, real: RealPrometheus, ours: MetricSource) -> None:
        self.real, self.ours = real, ours
        self.compared = 0
        self.shown: set[str] = set()
        self._http = urllib3.PoolManager(retries=False)

    def __enter__(self) -> Both:
        return self

    def __exit__(self, *problem: object) -> None:
        self._http.clear()

    def write(self, series: Told) -> None:
        """Store samples in both."""
        told = list(series)
        self.real.write(told)
        load(self.ours, told)

    def ask(self, url: str, path: str, parameters: Mapping[str, str]) -> tuple[int, Json]:
        """Status and document of one answer."""
        answer = self._http.request("GET", f"{url}/api/v1/{path}", fields=dict(parameters), timeout=20.0)
        return answer.status, json.loads(answer.data)

    def agree(self, expression: str, at: float) -> Json:
        """Ask both for an expression at a moment; the answer of the real one, if they agree."""
        return self.agree_on("query", {"query": expression, "time": f"{at:.3f}"})

    def agree_on(self, path: str, parameters: Mapping[str, str]) -> Json:
        """The same for any question."""
        wanted, found = (self.ask(url, path, parameters) for url in (self.real.url, self.ours.url))
        self.compared += 1
        asked = f"{path} {dict(parameters)}"
        assert found[0] == wanted[0], f"{asked}\nwanted {wanted}\nfound {found}"
        if wanted[0] != 200:
            assert found[1]["errorType"] == wanted[1]["errorType"], f"{asked}\nwanted {wanted}\nfound {found}"
            return wanted[1]
        theirs, mine = wanted[1], found[1]
        assert plain(mine.get("warnings")) == plain(theirs.get("warnings")), f"{asked}: {mine} {theirs}"
        difference = difference_of(theirs["data"], mine["data"])
        assert not difference, f"{asked}\n{difference}\nwanted {theirs['data']}\nfound {mine['data']}"
        return theirs


class JudgedClient(Prometheus):
    """A client of the real one whose every question is also put to ours."""

    def __init__(self, both: Both, **options: Any) -> None:
        super().__init__(both.real.url, **options)
        self._both = both

    def instant(self, query: str, at: float | None = None) -> Any:
        """As the client's, compared first."""
        if at is not None:
            self._both.agree(query, at)
            self._both.shown.add(query)
        return super().instant(query, at)


def load(ours: MetricSource, told: Told) -> None:
    """Samples as `RealPrometheus.write` takes them."""
    ours.load(
        (labels, [(round(at * 1000), None if value is STALE else value) for at, value in points])
        for labels, points in told
    )


def plain(said: Sequence[str] | None) -> list[str]:
    """Warnings without the place in the query that they are about, which our parser does not tell."""
    return sorted(text.rsplit(" (", 1)[0] for text in said or ())


def difference_of(wanted: Json, found: Json) -> str:
    """What differs between two results; series may come in another order."""
    if wanted["resultType"] != found["resultType"]:
        return f"{found['resultType']} instead of {wanted['resultType']}"
    if wanted["resultType"] in ("scalar", "string"):
        return _points([wanted["result"]], [found["result"]])
    theirs, mine = _by_labels(wanted["result"]), _by_labels(found["result"])
    if theirs.keys() != mine.keys():
        return f"missing {theirs.keys() - mine.keys()}, too many {mine.keys() - theirs.keys()}"
    for labels, points in theirs.items():
        if problem := _points(points, mine[labels]):
            return f"{dict(labels)}: {problem}"
    return ""


def _by_labels(result: list[Json]) -> dict[frozenset[tuple[str, str]], list[Any]]:
    found = {frozenset(one["metric"].items()): one.get("values") or [one["value"]] for one in result}
    assert len(found) == len(result), "two series of the same labels"
    return found


def _points(wanted: list[Any], found: list[Any]) -> str:
    if [at for at, _ in wanted] != [at for at, _ in found]:
        return f"times {[at for at, _ in found]} instead of {[at for at, _ in wanted]}"
    for (at, theirs), (_, mine) in zip(wanted, found, strict=True):
        if not same(theirs, mine):
            return f"{mine} instead of {theirs} at {at}"
    return ""


def same(wanted: str, found: str) -> bool:
    """Whether two values are one number, or both none."""
    if wanted == found:
        return True
    try:
        one, other = float(wanted), float(found)
    except ValueError:
        return False
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=0.0)
