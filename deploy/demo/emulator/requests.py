"""Who asks, and what a write looks like to those who judge it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from deploy.demo.emulator.kinds import Kind

Doc = dict[str, Any]
Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True)
class User:
    """Whom a request is from: the name and groups that rights and admission policies go by."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def all_groups(self) -> tuple[str, ...]:
        """The groups, with that of everybody who has shown a token."""
        return tuple(dict.fromkeys((*self.groups, "system:authenticated")))


def service_account(namespace: str, name: str) -> User:
    """The user that a service account is, with its groups."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


@dataclass(frozen=True)
class Write:
    """A write as admission sees it, after defaulting and validation and before anything is stored.

    ``object`` is None for a deletion, ``old`` for a creation; for ``subresource`` "scale" both are Scale documents.
    """

    operation: Operation
    kind: Kind
    subresource: str
    namespace: str
    name: str
    user: User
    dry_run: bool
    object: Doc | None
    old: Doc | None


# Judges a write: raises ApiProblem to refuse it.
Check = Callable[[Write], None]
# Changes a document before it is judged, as a mutating webhook would: in place.
Change = Callable[[Write, Doc], None]
