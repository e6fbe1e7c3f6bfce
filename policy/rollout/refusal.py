"""What a caller is told when something may not be done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason against a request.

    `code` is stable and kebab-case, `sentence` says what is wrong, `next_action` what to do instead. `path`
    names the field at fault, such as `roles[prefill].spec.replicas`; it is empty where no field is.
    """

    code: str
    sentence: str
    next_action: str
    path: str = ""
