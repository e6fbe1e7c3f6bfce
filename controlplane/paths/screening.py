"""Whether the live routers of a set keep each request inside one revision, and whether clients can pin: read, and
where it can be, seen.

What is seen: a request pinned to a revision that cannot exist is refused by the router, and one pinned to a live
revision is served and stamped by it. So the screener with its strict header is the one that runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.errors import Unavailable
from controlplane.paths.pool_settings import PoolSettings
from controlplane.paths.requests import DROPPED_REASON, Line, read_credential
from controlplane.paths.view import PoolView
from policy.guard import Guard, GuardProbe, judge_guard_probe
from policy.rollout.hazards_path import Screening
from policy.rollout.wording import count
from policy.router.settings import HEADER_HANDLER, PROFILE_HANDLER, REVISION_LABEL

NOBODY = "0none0no"  # no hash in hexadecimal: no revision can have this label
TIMEOUT_S = 5.0
GUARD_PROBES = 3
_NO_ENDPOINTS = "rejected-no-endpoints"
_UNANSWERED = "no-control"  # the reason of judge_guard_probe where plain requests were not answered


@dataclass(frozen=True, slots=True)
class Screened:
    """The verdict about one pool, with a sentence."""

    state: Screening
    why: str


def read_screening(
    pool: PoolView, *, roles: Sequence[str], set_name: str = "", roles_in_pool: bool = True
) -> Screened:
    """What the router's configuration says. `roles` are the set's role names: all must be required.

    With `roles_in_pool` the pool must select pods of every role, of this set where it is named: a role behind a
    router of its own is drawn there, and not together with the others.
    """
    router, settings = pool.router, pool.router.settings
    if router.problems or not settings.readable or settings.problems:
        said = [*router.problems, *settings.problems] or ["its configuration is not known"]
        return Screened("unknown", f"The router of {pool.name}: {said[0]}.")
    gap = _gap(pool, roles) or _pods_left_out(pool, roles if roles_in_pool else (), set_name)
    if gap or settings.screener is None:
        return Screened("absent", gap)
    if not router.ready:
        return Screened("unknown", f"No pod of the router of {pool.name} is ready.")
    if not router.config.sure:
        return Screened(
            "unknown",
            f"The configuration of {pool.name} was written after its router started; what runs is not known.",
        )
    return Screened("configured", f"The router of {pool.name} is configured to ({settings.screener.mode}).")


def _gap(pool: PoolView, roles: Sequence[str]) -> str:
    """What the document lacks; "" where it lacks nothing."""
    settings = pool.router.settings
    if settings.screener is None or not settings.screener.draws:
        return f"The router of {pool.name} has no rollout screener that draws a revision."
    if settings.revision_label != REVISION_LABEL:
        return (
            f"The screener of {pool.name} draws by the label {settings.revision_label}, not by the revision."
        )
    if settings.handler == HEADER_HANDLER:
        return f"The router of {pool.name} is asked once for each phase ({HEADER_HANDLER}): each draws alone."
    if len(set(roles)) > 1 and settings.handler != PROFILE_HANDLER:
        return (
            f"The router of {pool.name} has no {PROFILE_HANDLER}: it does not choose all roles of a request."
        )
    missing = sorted(set(roles) - set(settings.screener.required_roles))
    return f"The screener of {pool.name} does not require {', '.join(missing)}." if missing else ""


def _pods_left_out(pool: PoolView, roles: Sequence[str], set_name: str) -> str:
    """Pods that the screener or the pool does not see; "" where there are none."""
    outside = [pod.name for pod in pool.pods if pod.in_pool and not pod.in_scope]
    if outside:
        return f"The screener's scope of {pool.name} leaves out {outside[0]}, which it may pick."
    own = [pod for pod in pool.pods if pod.in_pool and set_name in ("", pod.set_name)]
    lacking = sorted(set(roles) - {pod.set_role or pod.role for pod in own})
    if lacking:
        return (
            f"The pool {pool.name} selects no pod of {', '.join(lacking)}: where another router chooses it, each draws "
            "alone."
        )
    return ""


def prove_guard(pool: PoolView, settings: PoolSettings) -> Guard | None:
    """What the public side does with the revision header, by six requests of one token; None where there is no public
    address to ask. A route's document alone proves nothing: some gateways apply its header changes only after the
    router has read the request. Answers without the stamp of a revision of this pool came from somewhere else, and
    tell nothing (`cannot-tell`, `other-gateway`). Whether anything was seen at all: `guard_was_seen`."""
    strict = pool.router.settings.strict_header
    if not settings.public_url or not settings.model or not strict:
        return None
    line = Line(settings.public_url, timeout_s=TIMEOUT_S)
    try:
        probes = [_guard_probe(line, settings, strict, sent) for sent in ("", NOBODY) * GUARD_PROBES]
    finally:
        line.close()
    guard = judge_guard_probe(probes, least=GUARD_PROBES)
    revisions = {pod.revision for pod in pool.pods if pod.in_pool} - {""}
    served = [each for each in probes if each.status is not None and 200 <= each.status < 300]
    strange = [each for each in served if each.stamped not in revisions]
    if guard.reason == _UNANSWERED or not strange:
        return guard
    return Guard(
        "cannot-tell",
        "other-gateway",
        f"{count(len(strange), 'answer')} did not carry {strict} with a revision of {pool.name}.",
        "Check that the public address leads to this pool, and that no gateway takes the header from answers.",
    )


def guard_was_seen(guard: Guard | None) -> bool:
    """Whether the plain requests of `prove_guard` were answered. Then a `cannot-tell` is what was seen, and no document
    of a route says more."""
    return guard is not None and guard.reason != _UNANSWERED


def _guard_probe(line: Line, settings: PoolSettings, strict: str, sent: str) -> GuardProbe:
    body = {"model": settings.model, "prompt": "Lockstep looks at the guard.", "max_tokens": 1}
    reply = line.complete(body, headers={strict: sent} if sent else {})
    return GuardProbe(
        sent=sent,
        status=reply.status,
        dropped_reason=reply.headers.get(DROPPED_REASON, ""),
        stamped=reply.headers.get(strict, ""),
    )


def prove_screening(pool: PoolView, settings: PoolSettings, *, revision: str) -> Screened:
    """Two requests through the gateway. Anything but the expected answers leaves it at *configured*, and says why."""
    strict = pool.router.settings.strict_header
    if not settings.can_probe or not strict:
        return Screened(
            "configured", "No probe can be sent: the pool's address or the strict header is missing."
        )
    try:
        line = Line(
            settings.probe_url,
            headers=read_credential(settings.credential, url=settings.probe_url),
            timeout_s=TIMEOUT_S,
        )
    except Unavailable as error:
        return Screened("configured", error.sentence)
    body = {"model": settings.model, "prompt": "Lockstep looks at the path.", "max_tokens": 1}
    try:
        nobody = line.complete(body, headers={strict: NOBODY})
        somebody = line.complete(body, headers={strict: revision})
    finally:
        line.close()
    refused = nobody.status == 503 and nobody.headers.get(DROPPED_REASON) == _NO_ENDPOINTS
    served = somebody.status == 200 and somebody.headers.get(strict) == revision
    if refused and served:
        return Screened(
            "proved", f"A request pinned to {revision} was served by it, one pinned to nobody was refused."
        )
    seen = f"{nobody.status or 'no answer'} and {somebody.status or 'no answer'}"
    return Screened(
        "configured",
        f"Requests pinned to nobody and to {revision} ended with {seen}, not with 503 and its stamp.",
    )
