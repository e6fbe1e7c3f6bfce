"""`/session` and `/me`: signing in and out, and who I am."""

from __future__ import annotations

from typing import Any

from django.middleware.csrf import get_token
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.access.actors import actor_of
from controlplane.access.models import User
from controlplane.access.permissions import ROLE_ACTIONS, can, grants_of
from controlplane.access.sign_in import sign_in, sign_out, signed_in_at


class SignInBody(serializers.Serializer[Any]):
    """Name and password of a person."""

    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=1000, trim_whitespace=False, write_only=True)


class SessionDocument(serializers.Serializer[Any]):
    """The session of this browser; `csrf_token` goes into X-CSRFToken of every unsafe request."""

    username = serializers.CharField(allow_null=True)
    signed_in_at = serializers.DateTimeField(allow_null=True)
    csrf_token = serializers.CharField()


class GrantDocument(serializers.Serializer[Any]):
    """A role in a scope; an empty cluster means everywhere."""

    id = serializers.IntegerField()
    role = serializers.CharField()
    cluster = serializers.CharField(allow_blank=True)
    namespace = serializers.CharField(allow_blank=True)


class TokenInUse(serializers.Serializer[Any]):
    """The token that this very call was made with."""

    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField())
    expires_at = serializers.DateTimeField()


class MeDocument(serializers.Serializer[Any]):
    """The account of the caller and what it may do."""

    username = serializers.CharField()
    kind = serializers.CharField()
    superuser = serializers.BooleanField()
    groups = serializers.ListField(child=serializers.CharField())
    grants = GrantDocument(many=True)
    may_everywhere = serializers.ListField(child=serializers.CharField())
    token = TokenInUse(allow_null=True)
    signed_in_at = serializers.DateTimeField(allow_null=True)


class SessionView(APIView):
    """The session of a person: read it, open it, close it."""

    basename = "session"
    permission_classes = [AllowAny]
    audited_as = {"post": "access.sign_in", "delete": "access.sign_out"}

    @extend_schema(operation_id="session_read", responses=SessionDocument)
    def get(self, request: Request) -> Response:
        """Who is signed in here, and the CSRF token."""
        return Response(self._document(request))

    @extend_schema(operation_id="session_open", request=SignInBody, responses=SessionDocument)
    def post(self, request: Request) -> Response:
        """Sign in by name and password. Five failures in 15 minutes lock the name for this address."""
        body = SignInBody(data=request.data)
        body.is_valid(raise_exception=True)
        data = body.validated_data
        sign_in(
            request=request._request,
            username=data["username"],
            password=data["password"],
            actor=actor_of(request),
        )
        request.user = request._request.user
        return Response(self._document(request))

    @extend_schema(operation_id="session_close", responses={204: None})
    def delete(self, request: Request) -> Response:
        """Sign out."""
        sign_out(request=request._request, actor=actor_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _document(self, request: Request) -> dict[str, Any]:
        user = request._request.user
        known = isinstance(user, User)
        return SessionDocument(
            {
                "username": user.get_username() if known else None,
                "signed_in_at": signed_in_at(request._request) if known else None,
                "csrf_token": get_token(request._request),
            }
        ).data


class MeView(APIView):
    """The caller."""

    basename = "me"

    @extend_schema(operation_id="me_read", responses=MeDocument)
    def get(self, request: Request) -> Response:
        """Who I am, and what I may do everywhere."""
        user = request.user
        assert isinstance(user, User)
        actions = sorted({action for actions in ROLE_ACTIONS.values() for action in actions})
        document = {
            "username": user.username,
            "kind": user.kind,
            "superuser": user.is_superuser,
            "groups": sorted(user.groups.values_list("name", flat=True)),
            "grants": grants_of(user),
            "may_everywhere": [action for action in actions if can(user, action)],
            "token": user.token,
            "signed_in_at": signed_in_at(request._request) if user.token is None else None,
        }
        return Response(MeDocument(document).data)
