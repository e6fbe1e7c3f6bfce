"""Open an account from the command line: the first administrator, or the people of a demo."""

from __future__ import annotations

import getpass
import os
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from controlplane.access.models import Grant, User
from controlplane.access.services import create_person, give_grant
from controlplane.access.tokens import mint_token
from controlplane.audit.actor import command
from controlplane.audit.clock import database_now
from controlplane.errors import LockstepError

PASSWORD_VARIABLE = "LOCKSTEP_NEW_PASSWORD"


class Command(BaseCommand):
    """Creates a person or a service account with roles everywhere, and a token where scopes are asked for."""

    help = (
        f"{__doc__ or ''} The password is read from {PASSWORD_VARIABLE}, or asked for; it is no argument, "
        "which others on the machine could read."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Name, roles, and what the token may do."""
        parser.add_argument("username")
        parser.add_argument("--role", action="append", default=[], choices=Grant.Role.values)
        parser.add_argument("--service", action="store_true", help="A service account: tokens, no password.")
        parser.add_argument("--responsible", help="Who answers for the token of a service account.")
        parser.add_argument("--superuser", action="store_true")
        parser.add_argument("--email", default="")
        parser.add_argument("--token", help="Scopes of a token to print, such as plan,operate.")
        parser.add_argument("--token-days", type=int, default=30)

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the account, and the token's secret where one was asked for."""
        try:
            with transaction.atomic():
                user = self._create(options)
                secret = self._mint(user, options) if options["token"] else ""
        except LockstepError as error:
            raise CommandError(f"{error.sentence} {error.next_action}".strip()) from error
        self.stdout.write(secret or f"{user.username} created")

    def _create(self, options: dict[str, Any]) -> User:
        actor = command("create_person")
        password = None if options["service"] else _password()
        user = create_person(
            username=options["username"],
            password=password,
            kind=User.Kind.SERVICE if options["service"] else User.Kind.PERSON,
            email=options["email"],
            superuser=options["superuser"],
            by=None,
            actor=actor,
        )
        for role in options["role"]:
            give_grant(username=user.username, role=role, by=None, actor=actor)
        return user

    def _mint(self, user: User, options: dict[str, Any]) -> str:
        responsible = user
        if options["responsible"]:
            found = User.objects.filter(username=options["responsible"]).first()
            if found is None:
                raise CommandError(f"There is no account {options['responsible']}.")
            responsible = found
        _, secret = mint_token(
            owner=user,
            minted_by=None,
            responsible=responsible,
            name="create_person",
            scopes=options["token"].split(","),
            expires_at=database_now() + timedelta(days=options["token_days"]),
            actor=command("create_person"),
        )
        return secret


def _password() -> str:
    return os.environ.get(PASSWORD_VARIABLE) or getpass.getpass("Password: ")
