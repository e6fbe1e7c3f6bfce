"""One request, one answer: priority, screening, scheduling. No network here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from deploy.demo.router.books import Books, Ticket
from deploy.demo.router.config import Config
from deploy.demo.router.fleet import Endpoint, Fleet, Pod
from deploy.demo.router.prompts import BadRequest, read_prompt
from deploy.demo.router.scheduling import Ask, Decision, DisaggHandler

OBJECTIVE = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
FAIRNESS = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
NO_ENDPOINTS = "rejected-no-endpoints"
SATURATED = "rejected-saturated"
SHUTTING_DOWN = "rejected-shutting-down"
_CODES = {400: "BadRequest", 429: "ResourceExhausted", 503: "ServiceUnavailable"}


@dataclass(frozen=True)
class Refused:
    """An answer in place of an endpoint: HTTP `status`, dropped reason (or None) and a sentence."""

    status: int
    reason: str | None
    message: str


@dataclass(frozen=True)
class Routed:
    """An endpoint, and the books' ticket of the request (none for a request without a body)."""

    endpoint: Endpoint
    prefill: Endpoint | None = None
    ticket: Ticket | None = None


@dataclass
class Scraped:
    """What metrics pages said: per `ip:port` (monotonic time, waiting requests, share of KV cache in use)."""

    stale_s: float
    pages: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    def fresh(self, endpoint: Endpoint) -> tuple[float, float] | None:
        """(waiting, KV usage) of an endpoint; None when nothing recent is known."""
        page = self.pages.get(endpoint.address)
        if page is None or time.monotonic() - page[0] > self.stale_s:
            return None
        return page[1], page[2]


@dataclass
class Router:
    """Decides requests from a configuration and a fleet, and keeps the books."""

    config: Config
    fleet: Fleet
    books: Books
    scraped: Scraped
    rng: Random = field(default_factory=Random)
    draining: bool = False
    _shares: dict[str, dict[str, float]] = field(default_factory=dict)
    _shares_at: int = -1

    def __post_init__(self) -> None:
        self.books.alive = self.fleet.endpoints
        self.books.fresh = lambda: sum(self.scraped.fresh(e) is not None for e in self.fleet.endpoints())
        self.books.shares = lambda: [(s.name, s.mode, self.shares()[s.name]) for s in self.config.screeners]

    def queue(self, endpoint: Endpoint) -> float:
        """Requests ahead at an endpoint: our own in flight, and what its page says is waiting."""
        fresh = self.scraped.fresh(endpoint)
        return self.books.at[endpoint.address] + (fresh[0] if fresh else 0.0)

    def kv_usage(self, endpoint: Endpoint) -> float:
        """Share of the KV cache in use as the endpoint's page says; 0 when that is not known."""
        fresh = self.scraped.fresh(endpoint)
        return fresh[1] if fresh else 0.0

    def shares(self) -> dict[str, dict[str, float]]:
        """Shares per revision of every screener, from the pods of this moment."""
        if self._shares_at != self.fleet.version:
            pods = self.fleet.pods.values() if self.fleet.pods_known else ()
            self._shares = {one.name: one.shares(pods) for one in self.config.screeners}
            self._shares_at = self.fleet.version
        return self._shares

    def route(self, headers: Mapping[str, str], body: bytes, received: float) -> Routed | Refused:
        """Decide a request with a body. `headers` in lower case, `received` in monotonic seconds."""
        priority = self.fleet.priority(_first(headers, OBJECTIVE))
        fairness = _first(headers, FAIRNESS)
        try:
            model, tokens = read_prompt(headers.get(":path", ""), body, self.config.parsers)
        except BadRequest as error:
            return self._refuse(Refused(400, None, str(error)), "", fairness, priority)
        endpoints = self.fleet.endpoints()
        if self.draining or not endpoints:
            refused = (
                Refused(503, SHUTTING_DOWN, "the router is shutting down")
                if self.draining
                else Refused(503, NO_ENDPOINTS, self._why_none())
            )
            self._count("EvictedOther" if self.draining else "RejectedNoEndpoints", priority)
            return self._refuse(refused, model, fairness, priority)
        self._count("Dispatched", priority)
        left = self._screened(endpoints, headers)
        if isinstance(left, Refused):
            self.books.attempts.labels("failure", model, "", "", "").inc()
            return self._refuse(left, model, fairness, priority)
        decision = self.config.handler.decide(Ask(headers, model, tokens), left, self, self.rng)
        if decision is None:
            self.books.attempts.labels("failure", model, "", "", "").inc()
            return self._refuse(self._no_decision(), model, fairness, priority)
        self._record(decision, model)
        flow = self.books.flow(model, fairness, priority)
        return Routed(
            decision.decode,
            decision.prefill,
            self.books.begin(flow, decision.decode, decision.prefill, received),
        )

    def route_without_body(self) -> Routed | Refused:
        """Any endpoint of the pool, without queue, screening or books: what the llm-d router does with a GET."""
        endpoints = self.fleet.endpoints()
        if not endpoints:
            return Refused(503, NO_ENDPOINTS, self._why_none())
        return Routed(self.rng.choice(endpoints))

    def stamps(self, pod: Pod) -> dict[str, str]:
        """Response headers that say which labels served."""
        return {name: value for one in self.config.screeners for name, value in one.stamps(pod).items()}

    def _screened(
        self, endpoints: Sequence[Endpoint], headers: Mapping[str, str]
    ) -> list[Endpoint] | Refused:
        left = list(endpoints)
        for one in self.config.screeners:
            left, unmatched = one.screen(left, headers, self.shares()[one.name], self.rng.random())
            if unmatched is not None:
                self.books.no_match.labels("disaggregatedset-rollout-screener", one.name, unmatched).inc()
                return Refused(503, NO_ENDPOINTS, f"no complete revision matches strict header {unmatched}")
            if not left:
                return Refused(503, NO_ENDPOINTS, "no revision has a Ready pod for every required role")
        return left

    def _no_decision(self) -> Refused:
        """429, as from a busy pool; without a reason where the decode profile does not even exist."""
        handler = self.config.handler
        if isinstance(handler, DisaggHandler) and handler.decode is None:
            return Refused(429, None, "the decode profile does not exist")
        return Refused(429, SATURATED, "the filters of a profile left no endpoint")

    def _record(self, decision: Decision, model: str) -> None:
        pod, port = decision.decode.pod, str(decision.decode.port)
        self.books.attempts.labels("success", model, pod.name, pod.namespace, port).inc()
        if decision.kind is not None:
            handler = self.config.handler
            self.books.decisions.labels(
                handler.name, "disagg-profile-handler", model or "unknown", decision.kind
            ).inc()

    def _count(self, outcome: str, priority: int) -> None:
        if self.config.flow_control:
            self.books.outcomes.labels(outcome, str(priority), self.books.pool).inc()

    def _refuse(self, refused: Refused, model: str, fairness: str, priority: int) -> Refused:
        flow = self.books.flow(model, fairness, priority)
        self.books.errors.labels(*flow.labels(), _CODES[refused.status]).inc()
        return refused

    def _why_none(self) -> str:
        if self.fleet.pool is None:
            return "the InferencePool is not known"
        return "the pool has no Ready endpoints" if self.fleet.pods_known else "pods are not known yet"


def _first(headers: Mapping[str, str], names: Sequence[str]) -> str:
    """The value of the first of these headers that is present; a present empty one wins over a later one."""
    return next((headers[name] for name in names if name in headers), "")
