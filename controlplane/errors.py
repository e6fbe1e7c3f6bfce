"""One family of errors: a stable code, a sentence, a next action, and facts.

The API renders them as RFC 9457 problem+json, the pages as a sentence with a next action. Code that decides
raises them; nobody parses prose. `policy` never raises them: it returns verdicts that callers turn into one.
"""

from __future__ import annotations

from typing import Any, ClassVar

from policy.rollout.refusal import Refusal
from policy.rollout.wording import capitalised


class LockstepError(Exception):
    """A refusal or failure that a caller can act on.

    `code` is stable and kebab-case (`target-taken`), `sentence` says what is wrong, `next_action` what to do,
    `field` names the input at fault as a dotted path, `facts` are JSON values worth showing.
    """

    status: ClassVar[int] = 500

    def __init__(
        self, code: str, sentence: str, *, next_action: str = "", field: str = "", **facts: Any
    ) -> None:
        super().__init__(f"{code}: {sentence}")
        self.code = code
        self.sentence = sentence
        self.next_action = next_action
        self.field = field
        self.facts = facts

    def as_problem(self) -> dict[str, Any]:
        """The error as an RFC 9457 document; `code`, `next_action`, `field` and `facts` are extension members."""
        problem: dict[str, Any] = {
            "type": f"urn:lockstep:error:{self.code}",
            "title": self.code.replace("-", " "),
            "status": self.status,
            "detail": self.sentence,
            "code": self.code,
        }
        if self.next_action:
            problem["next_action"] = self.next_action
        if self.field:
            problem["field"] = self.field
        if self.facts:
            problem["facts"] = self.facts
        return problem


class BadInput(LockstepError):
    """The request itself is wrong."""

    status = 422


class NotSignedIn(LockstepError):
    """Nobody, or nobody any more."""

    status = 401


class NotAllowed(LockstepError):
    """Known, but may not do this."""

    status = 403


class NotFound(LockstepError):
    """No such thing, or none that the caller may see."""

    status = 404


class Refused(LockstepError):
    """Well-formed and permitted, but the state of the world or a rule forbids it."""

    status = 409


def refused_by(refusal: Refusal, **facts: Any) -> Refused:
    """A refusal of a table, whose texts are parts of a sentence, as an error."""
    return Refused(
        refusal.code,
        f"{capitalised(refusal.sentence)}.",
        next_action=f"{capitalised(refusal.next_action)}.",
        **facts,
    )


class StaleEdit(LockstepError):
    """If-Match names another version than the stored one."""

    status = 412


class MissingPrecondition(LockstepError):
    """If-Match or Idempotency-Key is required and absent."""

    status = 428


class Unavailable(LockstepError):
    """A part that is needed does not answer; trying again later may help."""

    status = 503
