"""What is under way, and what the metrics port shows of it: names, labels and buckets of the llm-d router.

A ticket stands for one dispatched request. However its stream ends, `finish` gives back exactly what `begin` took.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from deploy.demo.router.fleet import Endpoint

PREFIX = "llm_d_epp_"
PRODUCER = "inflight-load-producer"
DEFAULT_FLOW = "default-flow"
LABEL_VALUES = 1000
TTFT_BUCKETS_S = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3) + (
    4,
    5,
    6,
    8,
    10,
    15,
    20,
    30,
    45,
    60,
    120,
)
_REQUEST = ("model_name", "target_model_name", "fairness_id", "priority")


@dataclass(frozen=True, slots=True)
class Flow:
    """Whose request it is: the labels that request metrics share."""

    model: str
    fairness: str
    priority: int

    def labels(self) -> tuple[str, str, str, str]:
        """Values of model_name, target_model_name, fairness_id, priority. Nothing here rewrites a model name."""
        return (self.model, self.model, self.fairness, str(self.priority))


@dataclass(eq=False)
class Ticket:
    """One dispatched request, from decision to the end of its stream."""

    books: Books
    flow: Flow
    decode: Endpoint
    prefill: Endpoint | None
    received: float
    streaming: bool = False
    _begun: bool = False
    _over: bool = False

    def first_chunk(self) -> None:
        """The first piece of the answer: the prefill endpoint is done. Later calls do nothing."""
        if not self._begun and not self._over:
            self._begun = True
            self.books.ttft.labels(*self.flow.labels(), "true" if self.streaming else "false").observe(
                time.monotonic() - self.received
            )
            self.books.release(self.flow, self.prefill)

    def finish(self) -> None:
        """The end of the request, good or bad. Later calls do nothing."""
        if not self._over:
            self._over = True
            self.books.release(self.flow, self.decode)
            if not self._begun:
                self.books.release(self.flow, self.prefill)
            self.books.running[self.flow.labels()] -= 1


@dataclass(eq=False)
class Books(Collector):
    """Counts of one router. `alive` says which endpoints the pool has; series of others go with their last request."""

    pool: str
    alive: Callable[[], Iterable[Endpoint]] = tuple
    shares: Callable[[], Iterable[tuple[str, str, dict[str, float]]]] = tuple
    fresh: Callable[[], int] = int
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    in_flight: Counts[tuple[str, str, str, int]] = field(default_factory=Counts)
    at: Counts[str] = field(default_factory=Counts)
    running: Counts[tuple[str, str, str, str]] = field(default_factory=Counts)
    _seen: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def counter(name: str, what: str, labels: tuple[str, ...]) -> Counter:
            return Counter(PREFIX + name, what, labels, registry=self.registry)

        self.requests = counter("request", "Requests handed to an endpoint.", _REQUEST)
        self.errors = counter("request_error", "Requests refused.", (*_REQUEST, "error_code"))
        self.attempts = counter(
            "scheduler_attempts",
            "Decisions, by the endpoint that decodes.",
            ("status", "target_model_name", "endpoint_name", "namespace", "port"),
        )
        self.decisions = counter(
            "disagg_decision",
            "Decisions of the disaggregation handler.",
            ("plugin_name", "plugin_type", "model_name", "decision_type"),
        )
        self.no_match = counter(
            "disaggregatedset_strict_header_no_match",
            "Requests whose strict header matched no endpoint.",
            ("plugin_type", "plugin_name", "selector"),
        )
        self.outcomes = counter(
            "flow_control_requests",
            "Requests by outcome; counted with the flow control gate on.",
            ("outcome", "priority", "inference_pool"),
        )
        self.ttft = Histogram(
            PREFIX + "request_ttft_seconds",
            "From a request's headers to the first piece of the answer.",
            (*_REQUEST, "streaming"),
            buckets=TTFT_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(self)
        # As every Go program: since when the process counts is known from process_start_time_seconds.
        ProcessCollector(registry=self.registry)

    def flow(self, model: str, fairness: str, priority: int) -> Flow:
        """The flow of a request; past 1,000 models or fairness ids, new ones are counted as "other"."""
        return Flow(
            self._capped("model", model), self._capped("fairness", fairness or DEFAULT_FLOW), priority
        )

    def _capped(self, kind: str, value: str) -> str:
        seen = self._seen.setdefault(kind, set())
        if value not in seen:
            if len(seen) >= LABEL_VALUES:
                return "other"
            seen.add(value)
        return value

    def begin(self, flow: Flow, decode: Endpoint, prefill: Endpoint | None, received: float) -> Ticket:
        """Count a dispatched request until its ticket is finished. `received`: monotonic seconds."""
        self.requests.labels(*flow.labels()).inc()
        self.running[flow.labels()] += 1
        for endpoint in (decode, prefill):
            if endpoint is not None:
                self.in_flight[_key(flow, endpoint)] += 1
                self.at[endpoint.address] += 1
        return Ticket(self, flow, decode, prefill, received)

    def release(self, flow: Flow, endpoint: Endpoint | None) -> None:
        """One request less at an endpoint."""
        if endpoint is not None:
            self.in_flight[_key(flow, endpoint)] -= 1
            self.at[endpoint.address] -= 1
            if self.at[endpoint.address] <= 0:
                del self.at[endpoint.address]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The gauges, from the state of this moment."""
        alive = {endpoint.name for endpoint in self.alive()}
        for key in [key for key, count in self.in_flight.items() if not count and key[0] not in alive]:
            del self.in_flight[key]
        labels = ["endpoint_name", "fairness_id", "namespace", "priority", "producer_name"]
        flight = GaugeMetricFamily(PREFIX + "inflight_requests", "Requests at an endpoint.", labels=labels)
        for (endpoint, namespace, fairness, priority), count in self.in_flight.items():
            flight.add_metric([endpoint, fairness, namespace, str(priority), PRODUCER], count)
        running = GaugeMetricFamily(PREFIX + "request_running", "Requests under way.", labels=list(_REQUEST))
        for values, count in self.running.items():
            running.add_metric(list(values), count)
        share = GaugeMetricFamily(
            PREFIX + "disaggregatedset_revision_gating_share",
            "Share of requests without a strict header meant for a revision.",
            labels=["plugin_type", "plugin_name", "mode", "revision"],
        )
        for name, mode, revisions in self.shares():
            for revision, value in revisions.items():
                share.add_metric(["disaggregatedset-rollout-screener", name, mode, revision], value)
        ready = GaugeMetricFamily(
            PREFIX + "ready_endpoints", "Endpoints with fresh metrics.", labels=["name"]
        )
        ready.add_metric([self.pool], self.fresh())
        info = GaugeMetricFamily(PREFIX + "info", "The program.", labels=["commit", "build_ref"])
        info.add_metric(["", "lockstep-demo-router"], 1)
        return (flight, running, share, ready, info)


def _key(flow: Flow, endpoint: Endpoint) -> tuple[str, str, str, int]:
    return (endpoint.name, endpoint.pod.namespace, flow.fairness, flow.priority)
