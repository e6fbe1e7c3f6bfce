"""What is known about routes, pools, routers and ready pods when shares are planned.

Rules of the screener: the llm-d router's `disaggregatedset-rollout-screener` (August 2026), its page and source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

# Who can do which half of the work: values of the label llm-d.ai/role.
PREFILLS = frozenset({"prefill", "encode-prefill", "prefill-decode", "encode-prefill-decode", "both"})
DECODES = frozenset({"decode", "prefill-decode", "encode-prefill-decode", "both"})

Mode: TypeAlias = Literal["sum", "max-role", "disabled"]
Decider: TypeAlias = Literal["always", "never", "by-prompt", "unknown"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something is as it is. `id` is stable and kebab-case."""

    id: str
    sentence: str


@dataclass(frozen=True, slots=True)
class PodCount:
    """Pods of one role of one revision, in the pool's namespace.

    `ready` are Ready. Of these `in_scope` match the screener's label selector and `in_pool` the InferencePool's
    (None: all of them do).
    """

    revision: str
    role: str
    ready: int
    in_scope: int | None = None
    in_pool: int | None = None

    @property
    def scoped(self) -> int:
        """Ready pods that the screener counts."""
        return self.ready if self.in_scope is None else self.in_scope

    @property
    def pooled(self) -> int:
        """Ready pods that the router may pick."""
        return self.ready if self.in_pool is None else self.in_pool


@dataclass(frozen=True, slots=True)
class Screener:
    """The router's rollout screener: how it draws a revision, and the roles that one must have."""

    mode: Mode
    required_roles: tuple[str, ...] = ()

    @property
    def draws(self) -> bool:
        """Whether each request is kept inside one revision."""
        return self.mode != "disabled"


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One InferencePool. `screener` is None where the router has none.

    `router_ready`: a router pod is ready to pick. `fail_open`: without it the gateway picks any pod, else it
    refuses. `decider` says when the router uses a prefill pod: for every request, for none, or as the prompt is.
    """

    name: str
    pods: tuple[PodCount, ...]
    screener: Screener | None = None
    router_ready: bool = True
    fail_open: bool = False
    decider: Decider = "unknown"

    @property
    def revisions(self) -> tuple[str, ...]:
        """Every revision that has an entry, in alphabetical order."""
        return tuple(sorted({pods.revision for pods in self.pods}))

    def count(self, revision: str, *, scoped: bool = False, roles: frozenset[str] | None = None) -> int:
        """Ready pods of a revision that the screener counts, or else that the router may pick."""
        return sum(
            pods.scoped if scoped else pods.pooled
            for pods in self.pods
            if pods.revision == revision and (roles is None or pods.role in roles)
        )


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """One rule of an HTTPRoute: weights of its pools. `traffic`: requests it was seen to get (None: not known)."""

    name: str
    weights: tuple[tuple[str, int], ...]
    traffic: float | None = None


@dataclass(frozen=True, slots=True)
class PathFacts:
    """Everything between the gateway and the pods of one served model."""

    pools: tuple[PoolFacts, ...]
    routes: tuple[RouteFacts, ...]
