"""Who did it: the few facts of an actor that every audit row carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ActorKind: TypeAlias = Literal["person", "token", "worker", "command", "nobody"]


@dataclass(frozen=True, slots=True)
class Actor:
    """A person, a token, a worker or a command line.

    `on_behalf_of` names the person who answers for it: the responsible person of a token, the person whose
    operation a worker carries out. `source_ip` is the peer address, None where there was no request.
    """

    name: str
    kind: ActorKind
    on_behalf_of: str = ""
    request_id: str = ""
    source_ip: str | None = None


def worker(name: str, *, on_behalf_of: str = "") -> Actor:
    """The actor of work that a worker does, for the person who started it."""
    return Actor(name=name, kind="worker", on_behalf_of=on_behalf_of)


def command(name: str) -> Actor:
    """The actor of a management command, run by somebody with a shell on the machine."""
    return Actor(name=name, kind="command")
