"""`Prometheus`: questions in PromQL to one metric source, answers as numbers with the source's own times.

Every question is asked once and within a time; whoever asks decides what a failure means. The package that sends
it gives away warnings, error types and result types, so the answer is read here.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import requests
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect

from controlplane.errors import BadInput
from controlplane.metrics.address import origin_of, read_address
from controlplane.metrics.errors import ForbiddenAddress, MetricsError
from controlplane.metrics.session import Adapter, Broken, Session, TooLarge, TooSlow

MOST_BYTES = 16 << 20
MOST_SHOWN = 300
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class Sample:
    """`at`: unix seconds on the source's clock. `value` is None where the source says NaN or an infinity;
    `text` is what it says."""

    at: float
    value: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one set of labels, oldest first. An instant answer has one, the value at that instant."""

    labels: Mapping[str, str]
    samples: tuple[Sample, ...]

    @property
    def value(self) -> float | None:
        """The newest number, or None where it is none."""
        return self.samples[-1].value


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gave. `warnings` means that the numbers may be incomplete (a part of the source failed);
    `infos` are hints at the query."""

    query: str
    series: tuple[Series, ...]
    warnings: tuple[str, ...]
    infos: tuple[str, ...]


class Prometheus:
    """One metric source. For one thread at a time; close it after use (it is a context manager).

    `budget_s` bounds all questions together, from now on: what is asked when it is used up is too slow.
    `headers` carries credentials or a tenant; they are sent to this address alone and shown nowhere. `verify`
    is a bool or the path of a CA bundle. Raises BadInput for an address or a header that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        verify: bool | str = True,
        max_bytes: int = MOST_BYTES,
        budget_s: float | None = None,
    ) -> None:
        address = read_address(url)
        self.origin = origin_of(address)
        self.timeout_s = timeout_s
        self._budget_s = budget_s
        self._ends = None if budget_s is None else time.monotonic() + budget_s
        self._session = Session(timeout_s=timeout_s, max_bytes=max_bytes)
        self._session.verify = self.verify = verify
        self._connect = PrometheusConnect(
            url=address, headers=_checked(headers or {}), session=self._session, retry=0
        )
        self._session.mount(address, Adapter())  # in place of the package's own, which retries

    def __repr__(self) -> str:
        return f"Prometheus({self.origin})"

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connect.close()

    def instant(self, query: str, at: float | None = None) -> Answer:
        """The query's value at one moment: unix seconds on the source's clock, or its present. A range
        selector gives the samples themselves with the times of their scrapes. Raises MetricsError."""
        moment = {} if at is None else {"time": f"{at:.3f}"}
        return self._ask(query, lambda more: self._connect.custom_query(query, params=moment | more))

    def range(self, query: str, *, start: float, end: float, step_s: float) -> Answer:
        """The query's values from start to end (unix seconds, whole ones: the package rounds them) every
        `step_s`. The source refuses more than 11,000 steps. Raises MetricsError."""
        first, last = (datetime.fromtimestamp(moment, UTC) for moment in (start, end))
        return self._ask(
            query,
            lambda more: self._connect.custom_query_range(query, first, last, f"{step_s:g}", params=more),
        )

    def now(self) -> float:
        """The source's present in unix seconds. Raises MetricsError."""
        answer = self.instant("time()")
        if len(answer.series) != 1 or answer.series[0].value is None:
            raise self._bad("no time", answer.query)
        return answer.series[0].samples[-1].at

    def _ask(self, query: str, send: Any) -> Answer:
        if self._ends is not None:
            left = self._ends - time.monotonic()
            if left <= 0:
                raise self._too_slow(query)
            self._session.timeout_s = min(self.timeout_s, left)
        try:
            send({"timeout": f"{self.timeout_s:g}s"})
        except ForbiddenAddress:
            reason = "its name leads to a link-local address, which may not be asked"
            raise self._unreachable(reason, query) from None
        except (TooSlow, requests.exceptions.Timeout):
            raise self._too_slow(query) from None
        except TooLarge:
            raise MetricsError(
                "metrics-too-large",
                f"The metric source {self.origin} answered with more than {self._session.max_bytes} bytes.",
                next_action="Ask for fewer series or a shorter time.",
                source=self.origin,
                query=query,
            ) from None
        except PrometheusApiClientException:
            raise self._refusal(query) from None
        except (requests.exceptions.JSONDecodeError, KeyError, TypeError):
            raise self._bad("no answer of a Prometheus", query) from None
        except (OSError, Broken) as error:
            # Their texts name the whole address.
            raise self._unreachable(_cause(error), query) from None
        return self._read(query)

    def _read(self, query: str) -> Answer:
        try:
            document = json.loads(self._session.body)
            kind, result = document["data"]["resultType"], document["data"]["result"]
            warnings = [str(text) for text in document.get("warnings") or ()]
            infos = tuple(str(text) for text in document.get("infos") or ())
            if document.get("status") != "success":
                raise ValueError("not a success")
            series, skipped = _series(kind, result)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError):
            raise self._bad("no answer of a Prometheus", query) from None
        if skipped:
            warnings.append(f"{skipped} native histograms were left out")
        return Answer(query, series, tuple(warnings), infos)

    def _refusal(self, query: str) -> MetricsError:
        status, (kind, said) = self._session.status, _error_of(self._session.body)
        facts: dict[str, Any] = {"source": self.origin, "status": status}
        if status in (503, 504) and kind in ("timeout", "canceled"):
            return self._too_slow(query)
        if status in (400, 422) and kind:
            return MetricsError(
                "metrics-query-refused",
                f"The metric source {self.origin} did not take a query: {said}",
                next_action="Look at the label names and the prefix that are set for this source.",
                query=query,
                **facts,
            )
        if 300 <= status < 400:
            return self._bad("a redirect; give the address that it leads to", query)
        if status == 404:
            return self._bad("'not found': its address lacks a path, or is that of something else", query)
        if status >= 500 or status == 429:
            return MetricsError(
                "metrics-failed",
                f"The metric source {self.origin} failed with HTTP {status}{': ' + said if said else ''}.",
                next_action="Try again in a moment; look at the source if it stays.",
                **facts,
            )
        return MetricsError(
            "metrics-refused",
            f"The metric source {self.origin} refused with HTTP {status}.",
            next_action="Look at the headers that it asks for and at their mounted values.",
            **facts,
        )

    def _unreachable(self, reason: str, query: str) -> MetricsError:
        return MetricsError(
            "metrics-unreachable",
            f"The metric source {self.origin} cannot be reached: {reason}.",
            next_action="Look at its address, and at the network between it and this process.",
            source=self.origin,
            query=query,
        )

    def _too_slow(self, query: str) -> MetricsError:
        return MetricsError(
            "metrics-too-slow",
            f"The metric source {self.origin} did not answer within {self.timeout_s:g} s"
            f"{'' if self._budget_s is None else f', or not all questions within {self._budget_s:g} s'}.",
            next_action="Try again; look at its load if it stays.",
            source=self.origin,
            query=query,
        )

    def _bad(self, what: str, query: str) -> MetricsError:
        return MetricsError(
            "metrics-bad-answer",
            f"The metric source {self.origin} answered with {what}.",
            next_action="Give the base address of a Prometheus (what stands before /api/v1/query).",
            source=self.origin,
            status=self._session.status,
            query=query,
        )


def number(text: str) -> float | None:
    """A number as Prometheus writes it; None for NaN and the infinities. Raises ValueError for anything else."""
    value = float(text)
    return value if math.isfinite(value) else None


def _series(kind: str, result: Any) -> tuple[tuple[Series, ...], int]:
    """The series of a result and how many of it are native histograms, which have no single number."""
    if kind == "scalar":
        return (Series({}, (_sample(result),)),), 0
    if kind not in ("vector", "matrix"):
        raise ValueError(kind)
    found = []
    for item in result:
        points = item.get("values", []) if kind == "matrix" else [item["value"]] if "value" in item else []
        if points:
            labels = {str(name): str(value) for name, value in item["metric"].items()}
            found.append(Series(labels, tuple(_sample(point) for point in points)))
    return tuple(found), len(result) - len(found)


def _sample(point: Any) -> Sample:
    at, text = point
    if not isinstance(text, str):
        raise ValueError("a value is a string")
    return Sample(float(at), number(text), text)


def _error_of(body: bytes) -> tuple[str, str]:
    """errorType and error of Prometheus' error document; empty where it is none."""
    try:
        document = json.loads(body)
        return str(document["errorType"]), str(document["error"])[:MOST_SHOWN]
    except (ValueError, KeyError, TypeError):
        return "", ""


def _cause(error: BaseException) -> str:
    """Why there was no answer, in words that name neither address nor header."""
    if isinstance(error, Broken):
        return "its answer broke off"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted, or it does not speak TLS"
    seen: BaseException | None = error
    names: list[str] = []
    while seen is not None and len(names) < 10:
        names.append(type(seen).__name__)
        inner = getattr(seen, "reason", None) or next(
            (a for a in seen.args if isinstance(a, Exception)), None
        )
        seen = inner if isinstance(inner, BaseException) else seen.__cause__ or seen.__context__
    if "NameResolutionError" in names or "gaierror" in names:
        return "its name cannot be resolved"
    if "ConnectionRefusedError" in names:
        return "the connection was refused"
    return f"the connection failed ({names[-1]})"


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise BadInput(
                "metric-header-wrong",
                f"The header {name[:100]!r} of a metric source cannot be sent as it is.",
                next_action="Its name has letters, digits and hyphens, its value one line of ASCII without a line end.",
            )
    return dict(headers)
