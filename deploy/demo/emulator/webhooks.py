"""The webhooks of the LeaderWorkerSet manager, played here: what they fill in, what they refuse, and being away.

A broken webhook fails every write of the kinds that it judges with the real server's 500, and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.requests import Write
from deploy.demo.emulator.sets import fill_group_set, judge_group_set, judge_set

Doc = dict[str, Any]
_LWS = "leaderworkersets.leaderworkerset.x-k8s.io"
_DS = "disaggregatedsets.disaggregatedset.x-k8s.io"
_PORT = 9443


class Webhooks:
    """Whether they answer, and what they say. ``up`` is whether they can be reached, ``behind`` whether the program
    behind them runs."""

    def __init__(self) -> None:
        self.up = True
        self.behind: Callable[[], bool] = lambda: True

    @property
    def answer(self) -> bool:
        """Whether a call to one of them comes back."""
        return self.up and self.behind()

    def change(self, write: Write, doc: Doc) -> None:
        """The mutating webhook of LeaderWorkerSets. Raises ApiProblem 500 when it is away."""
        if write.kind.ref == _LWS and write.subresource == "":
            self._reach("mleaderworkerset.kb.io", "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset")
            fill_group_set(doc)

    def check(self, write: Write) -> None:
        """The validating webhooks. Raises ApiProblem 403 for what they refuse, 500 when they are away."""
        if write.subresource or write.object is None:
            return
        if write.kind.ref == _DS:
            name = "vdisaggregatedset.kb.io"
            self._reach(name, "/validate-disaggregatedset-x-k8s-io-v1-disaggregatedset")
            _refuse(name, judge_set(write.object))
        elif write.kind.ref == _LWS:
            name = "vleaderworkerset.kb.io"
            self._reach(name, "/validate-leaderworkerset-x-k8s-io-v1-leaderworkerset")
            _refuse(name, judge_group_set(write.object, write.old))

    def _reach(self, name: str, path: str) -> None:
        if self.answer:
            return
        address = f"127.0.0.1:{_PORT}"
        why = (
            f'failed calling webhook "{name}": failed to call webhook: Post "https://{address}{path}?timeout=10s": '
            f"dial tcp {address}: connect: connection refused"
        )
        details = {"causes": [{"message": why}]}
        raise ApiProblem(500, "InternalError", f"Internal error occurred: {why}", details)


def _refuse(name: str, causes: list[str]) -> None:
    if causes:
        said = causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]"
        message = f'admission webhook "{name}" denied the request: {said}'
        raise ApiProblem(403, "Forbidden", message, {})
