"""Two answers to one prompt, and how far they disagree.

Greedy answers of one and the same engine differ from run to run: the order of additions depends on what else is in
the batch, and where two tokens are almost equally likely either may come out. After that the texts differ for good
although nothing is wrong. Comparing texts, or counting equal tokens, therefore measures mostly the first such tie.

So the disagreement looks only at positions where both answers stand after the same tokens: the common prefix and
the first position after it. Behind that, the two answer different questions.

- Along the common prefix both sides give the probability of the same token after the same tokens. The mean
  difference of their log-probabilities shows a cache that is slightly wrong everywhere, without a single flip.
- At the first different token it counts by how much each side preferred its own token to the other's. A tie is
  worth almost nothing, a clear preference everything.

The larger of the two, on a scale on which `CLEAR` nats are 1, is the disagreement. A wrong token in a long answer
is not diluted by the right ones around it, which a mean over tokens would do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Token: TypeAlias = "int | str"

# A preference of 2 nats, seven to one, is no tie: the jitter of engines in 16 bits stays well below 0.5.
CLEAR = 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. Tokens are ids, or pieces of text where an engine gives no ids.

    `logprobs` are natural logarithms, one for each token, or empty. `alternatives` are the likeliest tokens of each
    position with theirs, or empty. `cut`: the token limit ended it, not the model. `disaggregated`: it is proved
    that prefill and decode were two pods. `scored` are the reference's own log-probabilities of these tokens, where
    they were asked for.
    """

    tokens: tuple[Token, ...]
    logprobs: tuple[float, ...] = ()
    alternatives: tuple[Mapping[Token, float], ...] = ()
    cut: bool = False
    disaggregated: bool = False
    scored: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError where there is not one number for each token."""
        for numbers in (self.logprobs, self.alternatives, self.scored):
            if numbers and len(numbers) != len(self.tokens):
                raise ValueError(f"{len(numbers)} log-probabilities for {len(self.tokens)} tokens")

    @property
    def mean_logprob(self) -> float | None:
        """How likely its tokens are, by the reference where it scored them, else by the answering side."""
        numbers = self.scored or self.logprobs
        return sum(numbers) / len(numbers) if numbers else None


def disagreement(one: Answer, other: Answer) -> float:
    """From 0 (the same) to 1 (clearly different); symmetric. Without log-probabilities a difference is 1."""
    shared = _shared(one.tokens, other.tokens)
    shift = 0.0
    if shared and one.logprobs and other.logprobs:
        pairs = zip(one.logprobs[:shared], other.logprobs[:shared], strict=True)
        shift = min(1.0, sum(abs(a - b) for a, b in pairs) / shared / CLEAR)
    if _ends_there(one, shared) or _ends_there(other, shared):
        return shift
    gaps = [gap for gap in (_gap(one, other, shared), _gap(other, one, shared)) if gap is not None]
    return max(shift, min(1.0, max(gaps) / CLEAR)) if gaps else 1.0


def _shared(one: tuple[Token, ...], other: tuple[Token, ...]) -> int:
    """The length of the common prefix."""
    if one == other:
        return len(one)
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
    return min(len(one), len(other))


def _ends_there(answer: Answer, position: int) -> bool:
    """The answer has nothing to compare there: it was cut, or both ended together."""
    return len(answer.tokens) == position and answer.cut


def _gap(own: Answer, other: Answer, position: int) -> float | None:
    """By how many nats at least a side preferred its own token to the other's; None where nothing says."""
    if position >= len(own.tokens):
        # It ended here: how likely the end was is not among its tokens. Where both ended there is no difference.
        return 0.0 if position >= len(other.tokens) else None
    if not own.logprobs:
        return None
    mine = own.logprobs[position]
    rivals = own.alternatives[position] if own.alternatives else {}
    theirs = other.tokens[position] if position < len(other.tokens) else None
    if theirs is not None and theirs in rivals:
        rival = rivals[theirs]
    else:
        # All others together have what is left of 1, and one that is not listed is not likelier than any listed.
        rival = min([_rest(mine), *rivals.values()]) if theirs is not None else _rest(mine)
    return max(0.0, mine - rival)


def _rest(logprob: float) -> float:
    """The logarithm of what a probability leaves of 1."""
    left = -math.expm1(min(logprob, 0.0))
    return math.log(left) if left > 0.0 else -math.inf
