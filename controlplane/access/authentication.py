"""The two ways to be somebody: a bearer token for programs, a session for people."""

from __future__ import annotations

from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from controlplane.access.models import ApiToken, User
from controlplane.access.tokens import find_token


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer lsk_…`; `request.auth` is the ApiToken. A bad one is refused, never ignored."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """The token's owner with the token; None where no bearer is sent."""
        words = get_authorization_header(request).split()
        if not words or words[0].lower() != b"bearer":
            return None
        bearer = words[1].decode("ascii", "replace") if len(words) == 2 else ""
        token = find_token(bearer)
        if token is None:
            raise AuthenticationFailed("The token is unknown, expired or revoked.", code="token-invalid")
        return token.owner, token

    def authenticate_header(self, request: Request) -> str:
        """What a 401 asks for."""
        return 'Bearer realm="lockstep"'


class SignedInAuthentication(SessionAuthentication):
    """Django's session, with the CSRF token enforced on every unsafe method."""
