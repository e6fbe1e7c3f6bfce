"""Change requests as tests need them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from controlplane.access.models import User
from controlplane.approvals.models import ChangeRequest
from controlplane.approvals.services import cast_vote, open_request
from controlplane.audit.actor import Actor
from controlplane.audit.clock import database_now
from policy.approval.quorum import slots_for

SOMEBODY = Actor(name="somebody", kind="person")
DIGEST = "sha256:" + "a" * 64


def ask(requester: User, **changed: Any) -> ChangeRequest:
    """An open request of medium risk for plan 7 in lab/serving, unless changed."""
    given: dict[str, Any] = {
        "subject_kind": "upgrades.plan",
        "subject_id": 7,
        "digest": DIGEST,
        "title": "Raise the engine",
        "reason": "faster prefill",
        "evidence": {"rows": [[1, 0], [1, 1]]},
        "risk": "medium",
        "cluster": "lab",
        "namespace": "serving",
        "excluded": {},
        "expires_at": database_now() + timedelta(days=7),
        "actor": SOMEBODY,
    } | changed
    return open_request(requester=requester, **{"slots": slots_for(given["risk"]), **given})


def vote(request: ChangeRequest, voter: User, choice: str = "approve", **changed: Any) -> ChangeRequest:
    """One vote on the request's digest, signed in just now, unless changed."""
    given: dict[str, Any] = {
        "comment": "too large" if choice == "reject" else "",
        "digest": request.digest,
        "signed_in_at": database_now(),
        "is_token": False,
        "actor": Actor(name=voter.username, kind="person"),
    } | changed
    return cast_vote(request_id=request.pk, voter=voter, choice=choice, **given)
