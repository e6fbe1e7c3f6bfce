"""`/tokens` and `/people`, and the addresses of this room."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import DefaultRouter

from controlplane.access import services
from controlplane.access.actors import actor_of
from controlplane.access.audit_api import AuditViewSet
from controlplane.access.idempotency import idempotent
from controlplane.access.models import ApiToken, Grant, User
from controlplane.access.permissions import SCOPES, can, require
from controlplane.access.session_api import GrantDocument
from controlplane.access.tokens import mint_token, revoke_token
from controlplane.errors import BadInput


def routes(router: DefaultRouter) -> None:
    """Add this room's addresses."""
    router.register("tokens", TokenViewSet, basename="tokens")
    router.register("people", PersonViewSet, basename="people")
    router.register("audit", AuditViewSet, basename="audit")


class TokenDocument(serializers.ModelSerializer[ApiToken]):
    """A token, without its secret."""

    owner = serializers.CharField(source="owner.username")
    minted_by = serializers.CharField(source="minted_by.username")
    responsible = serializers.CharField(source="responsible.username")
    scopes = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = ApiToken
        fields = [
            "id",
            "prefix",
            "name",
            "owner",
            "minted_by",
            "responsible",
            "scopes",
            "created_at",
            "expires_at",
            "revoked_at",
            "last_used_at",
        ]


class MintedToken(TokenDocument):
    """A new token with its secret, which is shown this once."""

    secret = serializers.CharField()

    class Meta(TokenDocument.Meta):
        fields = [*TokenDocument.Meta.fields, "secret"]


class MintBody(serializers.Serializer[Any]):
    """What to make; owner and responsible are you unless an administrator names others."""

    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES), min_length=1)
    expires_at = serializers.DateTimeField()
    owner = serializers.CharField(max_length=150, required=False)
    responsible = serializers.CharField(max_length=150, required=False)


class TokenViewSet(mixins.ListModelMixin, viewsets.GenericViewSet[ApiToken]):
    """API tokens: your own and those you answer for; administrators see all."""

    queryset = ApiToken.objects.none()
    serializer_class = TokenDocument
    audited_as = {"create": "access.mint_token", "revoke": "access.revoke_token"}
    audited_kind = "token"

    def get_queryset(self) -> QuerySet[ApiToken]:
        """Newest first."""
        rows = ApiToken.objects.select_related("owner", "minted_by", "responsible").order_by("-pk")
        if can(self.request.user, "people.manage"):
            return rows
        return rows.filter(Q(owner=self.request.user.pk) | Q(responsible=self.request.user.pk))

    @extend_schema(request=MintBody, responses={201: MintedToken})
    def create(self, request: Request) -> Response:
        """Make a token. Its secret is in this answer and nowhere else, so this answer is never replayed."""
        body = MintBody(data=request.data)
        body.is_valid(raise_exception=True)
        data, me = body.validated_data, _caller(request)
        token, secret = mint_token(
            owner=_account(data.get("owner"), me, "owner"),
            minted_by=me,
            responsible=_account(data.get("responsible"), me, "responsible"),
            name=data["name"],
            scopes=data["scopes"],
            expires_at=data["expires_at"],
            actor=actor_of(request),
        )
        document = {**TokenDocument(token).data, "secret": secret}
        return Response(document, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=TokenDocument)
    @action(detail=True, methods=["post"])
    @idempotent
    def revoke(self, request: Request, pk: str) -> Response:
        """End a token now."""
        token = revoke_token(token_id=_number(pk), by=_caller(request), actor=actor_of(request))
        return Response(TokenDocument(token).data)


class PersonDocument(serializers.ModelSerializer[User]):
    """An account and its grants."""

    grants = GrantDocument(many=True)
    active = serializers.BooleanField(source="is_active")
    superuser = serializers.BooleanField(source="is_superuser")

    class Meta:
        model = User
        fields = ["username", "email", "kind", "active", "superuser", "last_login", "grants"]


class PersonBody(serializers.Serializer[Any]):
    """A new account; a service account has no password."""

    username = serializers.CharField(max_length=150)
    email = serializers.EmailField(required=False, default="")
    kind = serializers.ChoiceField(choices=User.Kind.choices, default=User.Kind.PERSON)
    password = serializers.CharField(
        max_length=1000, required=False, trim_whitespace=False, write_only=True, allow_null=True
    )


class GrantBody(serializers.Serializer[Any]):
    """A role; an empty cluster means everywhere, an empty namespace the whole cluster."""

    role = serializers.ChoiceField(choices=Grant.Role.choices)
    cluster = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)
    namespace = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)


class TakeGrantBody(serializers.Serializer[Any]):
    """Which grant to take away."""

    grant = serializers.IntegerField(min_value=1, max_value=2**62)


class PersonViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[User]):
    """Accounts, for administrators."""

    queryset = User.objects.none()
    serializer_class = PersonDocument
    lookup_field = "username"
    lookup_value_regex = r"[\w.@+-]+"
    filterset_fields = ["kind", "is_active"]
    audited_kind = "person"
    audited_as = {
        "create": "access.create_person",
        "give": "access.give_grant",
        "take": "access.take_grant",
        "close": "access.close_account",
    }

    def get_queryset(self) -> QuerySet[User]:
        """By name; needs people.manage everywhere."""
        require(self.request.user, "people.manage")
        return User.objects.prefetch_related("grants").order_by("username")

    @extend_schema(request=PersonBody, responses={201: PersonDocument})
    def create(self, request: Request) -> Response:
        """Open an account without any grant."""
        body = PersonBody(data=request.data)
        body.is_valid(raise_exception=True)
        data = body.validated_data
        user = services.create_person(
            username=data["username"],
            password=data.get("password"),
            kind=data["kind"],
            email=data["email"],
            by=_caller(request),
            actor=actor_of(request),
        )
        return Response(PersonDocument(user).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=GrantBody, responses=PersonDocument)
    @action(detail=True, methods=["post"], url_path="give-grant")
    @idempotent
    def give(self, request: Request, username: str) -> Response:
        """Give a role in a scope."""
        body = GrantBody(data=request.data)
        body.is_valid(raise_exception=True)
        services.give_grant(
            username=username, by=_caller(request), actor=actor_of(request), **body.validated_data
        )
        return self._person(username)

    @extend_schema(request=TakeGrantBody, responses=PersonDocument)
    @action(detail=True, methods=["post"], url_path="take-grant")
    @idempotent
    def take(self, request: Request, username: str) -> Response:
        """Take a role away."""
        body = TakeGrantBody(data=request.data)
        body.is_valid(raise_exception=True)
        services.take_grant(
            username=username,
            grant_id=body.validated_data["grant"],
            by=_caller(request),
            actor=actor_of(request),
        )
        return self._person(username)

    @extend_schema(request=None, responses=PersonDocument)
    @action(detail=True, methods=["post"])
    @idempotent
    def close(self, request: Request, username: str) -> Response:
        """Close an account; its history stays."""
        services.close_account(username=username, by=_caller(request), actor=actor_of(request))
        return self._person(username)

    def _person(self, username: str) -> Response:
        return Response(PersonDocument(User.objects.prefetch_related("grants").get(username=username)).data)


def _caller(request: Request) -> User:
    assert isinstance(request.user, User)
    return request.user


def _account(username: str | None, default: User, field: str) -> User:
    if username is None or username == default.username:
        return default
    require(default, "people.manage")
    found = User.objects.filter(username=username).first()
    if found is None:
        raise BadInput("no-such-person", f"There is no account {username}.", field=field)
    return found


def _number(pk: str) -> int:
    return int(pk) if pk.isascii() and pk.isdigit() and len(pk) < 19 else 0
