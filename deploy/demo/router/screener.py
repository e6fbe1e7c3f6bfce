"""The disaggregatedset-rollout-screener: one revision for all roles of a request, drawn by what can serve.

Counted are Ready pods of the pool's namespace that match `scope` and carry both labels (revision and role). Pool
membership does not matter, and neither does the place in a group: workers of a multi-node group count beside their
leader unless the scope says `leaderworkerset.sigs.k8s.io/worker-index=0`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deploy.demo.router.fleet import Endpoint, Pod
from deploy.demo.router.selectors import Selector

TYPE = "disaggregatedset-rollout-screener"
REVISION_LABEL = "disaggregatedset.x-k8s.io/revision"
ROLE_LABEL = "disaggregatedset.x-k8s.io/role"


@dataclass(frozen=True)
class HeaderSelector:
    """A header that names a value of a pod label. "strict" screens by it; every mode stamps it on responses."""

    name: str
    header: str
    label: str
    mode: str


@dataclass(frozen=True)
class Screener:
    """One configured screener; `mode` is sum, max-role or disabled."""

    name: str
    scope: Selector
    mode: str
    roles: tuple[str, ...] = ()
    selectors: tuple[HeaderSelector, ...] = ()
    revision_label: str = REVISION_LABEL
    role_label: str = ROLE_LABEL

    def shares(self, pods: Iterable[Pod]) -> dict[str, float]:
        """Share of every revision that has a counted pod, 0.0 where a required role is missing; {} when disabled.

        sum: pods over the required roles; max-role: pods of the one role with the largest total over complete
        revisions (the first of the required roles wins a tie).
        """
        if self.mode == "disabled":
            return {}
        counts: dict[str, Counter[str]] = {}
        for pod in pods:
            revision, role = pod.labels.get(self.revision_label), pod.labels.get(self.role_label)
            if revision and role and pod.ready and self.scope.matches(pod.labels):
                counts.setdefault(revision, Counter())[role] += 1
        complete = {
            r: per_role for r, per_role in counts.items() if all(per_role[role] for role in self.roles)
        }
        if self.mode == "max-role":
            totals = {role: sum(per_role[role] for per_role in complete.values()) for role in self.roles}
            counted: tuple[str, ...] = (max(self.roles, key=lambda role: totals[role]),)
        else:
            counted = self.roles
        weights = {r: sum(per_role[role] for role in counted) for r, per_role in complete.items()}
        total = sum(weights.values())
        return {revision: weights.get(revision, 0) / total if total else 0.0 for revision in counts}

    def screen(
        self,
        endpoints: Sequence[Endpoint],
        headers: Mapping[str, str],
        shares: Mapping[str, float],
        draw: float,
    ) -> tuple[list[Endpoint], str | None]:
        """Endpoints that this request may use, and the name of the strict selector that matched none.

        `draw` in [0, 1) chooses among complete revisions of the given endpoints; a present strict header takes the
        place of the draw. An empty list is to be answered with 503.
        """
        left = list(endpoints)
        strict = [
            (s, headers[s.header]) for s in self.selectors if s.mode == "strict" and headers.get(s.header)
        ]
        if self.mode != "disabled":
            seen = {endpoint.pod.labels.get(self.revision_label, "") for endpoint in left}
            allowed = {revision: shares.get(revision, 0.0) for revision in sorted(seen)}
            allowed = {revision: share for revision, share in allowed.items() if share > 0}
            if not strict and allowed:
                chosen = _drawn(allowed, draw)
                allowed = {chosen: allowed[chosen]}
            left = [e for e in left if e.pod.labels.get(self.revision_label, "") in allowed]
        for selector, wanted in strict:
            if not left:
                break
            left = [e for e in left if e.pod.labels.get(selector.label) == wanted]
            if not left:
                return [], selector.name
        return left, None

    def stamps(self, pod: Pod) -> dict[str, str]:
        """Response headers of a request that this pod served."""
        return {s.header: pod.labels[s.label] for s in self.selectors if pod.labels.get(s.label)}


def _drawn(shares: Mapping[str, float], draw: float) -> str:
    point = draw * sum(shares.values())
    for revision, share in shares.items():
        point -= share
        if point < 0:
            return revision
    return next(reversed(list(shares)))
