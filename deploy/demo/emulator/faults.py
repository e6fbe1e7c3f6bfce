"""Faults on request: which calls go wrong, how, how often. Decided by a seeded die, so that a run can be repeated.

A fault is a document, in process and over HTTP alike::

    {"id": "f1", "do": "status", "code": 429, "retry_after_s": 2,
     "verbs": ["patch"], "resources": ["leaderworkersets"], "users": ["lockstep"], "namespaces": [], "names": [],
     "count": 3, "share": 0.5, "seed": 7}

``do``: ``status`` answers with ``code`` (409, 410, 429, 500, 503, ...) and does nothing · ``delay`` waits ``delay_s``
first · ``hang`` never answers · ``drop`` breaks the connection before anything is done · ``lost`` does the write, then
breaks the connection: the answer is lost. Empty lists match everything; ``share`` 1.0 is every matching call;
``count`` None is for ever; ``users`` are matched by the end of the user name.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import web

from deploy.demo.emulator.address import Address
from deploy.demo.emulator.problems import ApiProblem, bad_request
from deploy.demo.emulator.requests import User

Doc = dict[str, Any]
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_ACTIONS = ("status", "delay", "hang", "drop", "lost")


@dataclass
class Fault:
    """See the module."""

    do: str
    id: str = ""
    code: int = 500
    message: str = ""
    retry_after_s: int | None = None
    delay_s: float = 0.0
    verbs: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    namespaces: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    count: int | None = None
    share: float = 1.0
    seed: int = 0
    met: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def fits(self, address: Address, user: User) -> bool:
        """Whether a call is one of those that are meant."""
        return (
            address.is_resource
            and (not self.verbs or address.verb in self.verbs)
            and (not self.resources or address.plural in self.resources)
            and (not self.namespaces or address.namespace in self.namespaces)
            and (not self.names or address.name in self.names)
            and (
                not self.users
                or any(user.name == each or user.name.endswith(f":{each}") for each in self.users)
            )
        )

    def strikes(self) -> bool:
        """Whether it happens this time."""
        if self.count is not None and self.met >= self.count:
            return False
        if self.share < 1.0 and self._random.random() >= self.share:
            return False
        self.met += 1
        return True


class Meeting:
    """The faults that one call meets."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = faults

    async def before(self, request: web.Request) -> None:
        """What happens before anything is done."""
        for fault in self._faults:
            if fault.do == "delay":
                await asyncio.sleep(fault.delay_s)
            elif fault.do == "hang":
                await asyncio.Event().wait()
            elif fault.do == "drop":
                _break(request)
            elif fault.do == "status":
                raise _problem(fault)

    async def after(self, request: web.Request) -> None:
        """What happens after it was done."""
        if any(fault.do == "lost" for fault in self._faults):
            _break(request)


def _break(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("a fault was asked for")


def _problem(fault: Fault) -> ApiProblem:
    texts = {
        409: "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest "
        "version and try again",
        410: "The resourceVersion for the provided list is too old.",
        429: "Too many requests, please try again later.",
        500: "Internal error occurred: a fault was asked for",
    }
    text = fault.message or texts.get(fault.code, "a fault was asked for")
    retry = fault.retry_after_s
    if fault.code == 429 and retry is None:
        retry = 1
    return ApiProblem(fault.code, _REASONS.get(fault.code, "InternalError"), text, {}, retry_after_s=retry)


class Faults:
    """The faults that stand."""

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}
        self._numbers = itertools.count(1)

    def add(self, fault: Fault) -> str:
        """Let a fault stand from now on; returns its id."""
        fault.id = fault.id or f"f{next(self._numbers)}"
        self._faults[fault.id] = fault
        return fault.id

    def remove(self, name: str) -> bool:
        """Take one away; False where there is none."""
        return self._faults.pop(name, None) is not None

    def clear(self) -> None:
        """Take all away."""
        self._faults.clear()

    def documents(self) -> list[Doc]:
        """All, with how often each was met."""
        return [asdict(fault) for fault in self._faults.values()]

    def meet(self, address: Address, user: User) -> Meeting:
        """What a call meets. A path that is no resource meets nothing."""
        return Meeting(
            [each for each in self._faults.values() if each.fits(address, user) and each.strikes()]
        )


def read(doc: Doc) -> Fault:
    """A fault from its document. Raises ApiProblem 400 for unknown keys or values."""
    try:
        fault = Fault(**{key: value for key, value in doc.items() if key != "met"})
    except TypeError as problem:
        raise bad_request(f"no fault: {problem}") from problem
    if fault.do not in _ACTIONS:
        raise bad_request(f"no fault: do is one of {', '.join(_ACTIONS)}")
    return fault
