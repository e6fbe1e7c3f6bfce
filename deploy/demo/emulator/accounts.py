"""Whose token is it: the tokens that were given out at the start, and those of service accounts asked for later."""

from __future__ import annotations

import csv
import secrets
from pathlib import Path

from deploy.demo.emulator.problems import unauthorized
from deploy.demo.emulator.requests import User, service_account

ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Accounts:
    """Users by token."""

    def __init__(self, tokens: dict[str, User] | None = None) -> None:
        self._users = dict(tokens or {})

    @classmethod
    def read(cls, token_file: Path) -> Accounts:
        """The users of a token file: ``token,user,uid,"group,group"``, as a real server reads it."""
        users = {}
        with token_file.open(newline="") as lines:
            for token, name, _, *groups in csv.reader(lines):
                users[token] = User(name, tuple(filter(None, (groups or [""])[0].split(","))))
        return cls(users)

    def find(self, token: str) -> User | None:
        """The user of a token, or None."""
        return self._users.get(token)

    def of_header(self, header: str | None) -> User:
        """The user of an Authorization header; nobody in particular without one. Raises ApiProblem 401."""
        if not header:
            return ANONYMOUS
        kind, _, token = header.partition(" ")
        user = self.find(token.strip()) if kind.lower() == "bearer" else None
        if user is None:
            raise unauthorized()
        return user

    def issue(self, namespace: str, name: str) -> str:
        """A new token of a service account."""
        token = secrets.token_urlsafe(32)
        self._users[token] = service_account(namespace, name)
        return token
