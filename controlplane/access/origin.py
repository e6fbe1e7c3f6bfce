"""Who stands behind a request that automation makes: those people do not vote on it."""

from __future__ import annotations

from rest_framework.request import Request

from controlplane.access.models import ApiToken
from policy.approval.eligibility import TokenOrigin


def token_origin(request: Request) -> TokenOrigin | None:
    """Owner, responsible person and minters of the token behind a request; None for a signed-in person."""
    token = request.auth
    if not isinstance(token, ApiToken):
        return None
    minted = ApiToken.objects.filter(owner=token.owner).values_list("minted_by__username", "created_at")
    return TokenOrigin(
        owner=token.owner.username,
        responsible=token.responsible.username,
        minted=tuple((who, at) for who, at in minted),
    )
