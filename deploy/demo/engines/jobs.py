"""What an engine is asked, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from deploy.demo.engines.kv import Prompt
from deploy.demo.engines.tokens import Sampling, Token

Reason = Literal["stop", "length", "abort", "error"]


class EngineProblem(Exception):
    """An answer other than 200: HTTP ``status`` and vLLM's error type."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class TransferFailed(Exception):
    """KV could not be read; the text is what the engine logs."""


@dataclass(frozen=True)
class Job:
    """One completion to compute.

    ``remote`` are the kv_transfer_params of a finished prefill whose KV is to be read; ``keep`` asks to lease the
    prompt's KV for a reader. ``most`` is max_tokens, None for as many as fit. ``stops`` end the answer when they
    appear in it.
    """

    request_id: str
    prompt: Prompt
    most: int | None = 16
    sampling: Sampling = field(default_factory=Sampling)
    ignore_end: bool = False
    stops: tuple[str, ...] = ()
    remote: Mapping[str, Any] | None = None
    keep: bool = False


@dataclass
class Work:
    """A job in an engine, from its admission to its end. Times are model seconds."""

    job: Job
    arrived: float
    blocks: int  # allocated
    number: int  # of this job in its engine, from 1
    start: int = 0  # where they are in the engine's sequence of allocations
    hit: int = 0  # prompt tokens found in the prefix cache
    fetched: int = 0  # prompt tokens read from another engine
    computed: int = 0  # prompt tokens computed here
    queue_s: float = 0.0
    fetch_s: float = 0.0
    prefill_s: float = 0.0
    gap_s: float = 0.0
    reason: Reason = "length"
    tokens: list[Token] = field(default_factory=list)
    running: bool = False
    over: bool = False

    @property
    def wrong(self) -> bool:
        """Whether any token of the answer was falsified."""
        return any(token.wrong for token in self.tokens)
