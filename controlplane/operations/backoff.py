"""How long to wait after a failed try, and what a failure is called."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from controlplane.errors import LockstepError
from controlplane.kube.errors import KubeError

MAX_ATTEMPTS = 5
# In sweeps, because a row that is due earlier is found by the next sweep at the latest: at 5 s a sweep the
# tries of a step lie 2, 4, 8 and 16 s apart (each times 0.75 to 1.25), which outlasts a restart of an API
# server.
_FIRST = 0.4
_LONGEST = 6.0


def retry_delay(attempts: int, *, spread: float | None = None) -> float:
    """Seconds until the next try after `attempts` failures: doubling, capped, jittered by `spread` in [0,
    1)."""
    spread = random.random() if spread is None else spread
    steps = min(_LONGEST, _FIRST * 2.0 ** (max(1, attempts) - 1))
    return settings.LOCKSTEP_SWEEP * steps * (0.75 + spread / 2)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a try failed. `unanswered`: a write may have been applied all the same. `expected`: an error that a
    step may meet, no traceback wanted. `counted`: adds to the attempts."""

    code: str
    sentence: str
    next_action: str
    facts: dict[str, Any]
    unanswered: bool = False
    expected: bool = True
    counted: bool = True

    def as_json(self) -> dict[str, Any]:
        """For findings, audit rows and a run's problem."""
        return {
            "code": self.code,
            "sentence": self.sentence,
            "next_action": self.next_action,
            "facts": self.facts,
        }


def describe_failure(error: Exception) -> Failure:
    """What an exception from a step or a run means to a person."""
    if isinstance(error, KubeError):
        code = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(error).__name__).lower()
        return Failure(code, str(error), "", error.as_facts(), unanswered=error.unanswered)
    if isinstance(error, LockstepError):
        return Failure(error.code, error.sentence, error.next_action, dict(error.facts))
    return Failure(
        "unexpected-error",
        f"{type(error).__name__}: {error}",
        "Look for the traceback in the worker's log.",
        {},
        expected=False,
    )
