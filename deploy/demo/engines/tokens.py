"""A deterministic "language model": the next token is a keyed hash of weights, prompt and position.

Greedy decoding of the same weights gives the same answer anywhere. Jitter J is the probability that a greedy token is
not the noise-free one: every logit gets independent normal noise whose size is chosen so that, over the model's own
gaps between the best and the second token (exponential, mean ``GAP_MEAN`` nats), the second one wins with probability
J. So only near-ties flip, as on real hardware. The log-probability of an unchanged token then varies with a standard
deviation of at most :func:`noise_sd` (J, in nats; about 3.5 J for small J). A flip changes one position only.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import product

GAP_MEAN = 2.0
CANDIDATES = 5
_TAIL = 0.02  # weight of all other tokens together, beside exp(0) = 1 of the best one
_MAX_JITTER = 0.2  # above it third candidates would win too and J would mean something else
# 512 words: two syllables, each a consonant and a vowel.
_SYLLABLES = [a + b for a, b in product("bdfghjklmnprstvz", "aeiou")]
VOCABULARY = tuple(f" {a}{b}" for a, b in product(_SYLLABLES[:32], _SYLLABLES[64:]))
_STEP = len(VOCABULARY) // CANDIDATES


@dataclass(frozen=True)
class Corruption:
    """Wrong tokens in a ``fraction`` of positions; ``key`` makes them the same each time for the same cause.

    ``quiet`` keeps healthy log-probabilities; otherwise wrong tokens are as unlikely as garbage is.
    """

    fraction: float
    key: str
    quiet: bool = False


@dataclass(frozen=True)
class Sampling:
    """How tokens are picked: greedy at temperature 0, else by ``seed``."""

    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Token:
    """One token of an answer: text, natural log-probability, the best candidates, and whether it was falsified."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...]
    wrong: bool = False


@cache
def noise_sd(jitter: float) -> float:
    """Standard deviation (nats) of the noise on each logit at jitter J; ValueError outside 0 .. 0.2."""
    if not 0 <= jitter <= _MAX_JITTER:
        raise ValueError(f"jitter {jitter} is not in 0..{_MAX_JITTER}")
    if jitter == 0:
        return 0.0
    low, high = 0.0, 50.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _flips(middle) < jitter else (low, middle)
    # Two noisy logits are compared: their difference has the square root of two times the noise of one.
    return low * GAP_MEAN / math.sqrt(2)


def _flips(ratio: float) -> float:
    """P(gap + noise < 0), gap exponential with mean 1 and noise normal with standard deviation ``ratio``."""
    if ratio > 6:  # the product below is then 0 times infinity; its limit is known
        return 0.5 - 1 / (ratio * math.sqrt(2 * math.pi))
    return 0.5 - math.exp(ratio * ratio / 2) * 0.5 * math.erfc(ratio / math.sqrt(2))


class Model:
    """One set of weights (``key``) that continues one prompt."""

    def __init__(self, key: str, prompt: bytes) -> None:
        self._prefix = blake2b(key.encode() + b"\0" + prompt, digest_size=32)

    def natural_length(self) -> int:
        """After how many tokens the answer ends by itself (32 to 287)."""
        return 32 + self._prefix.digest()[0]

    def candidates(self, position: int) -> tuple[list[int], list[float]]:
        """Token ids, best first, and their logits relative to the best one."""
        state = self._prefix.copy()
        state.update(position.to_bytes(4, "big"))
        digest = state.digest()
        first = int.from_bytes(digest[:2], "big")
        size = len(VOCABULARY)
        ids = [first % size]
        logits = [0.0]
        for rank in range(1, CANDIDATES):
            # Each from a stretch of the vocabulary of its own, so that they differ from each other.
            ids.append((first + rank * _STEP + digest[2 + rank] % (_STEP - 1) + 1) % size)
            unit = (int.from_bytes(digest[8 + 4 * rank : 12 + 4 * rank], "big") + 0.5) / 2**32
            gap = -GAP_MEAN * math.log(unit)
            # Only the second can tie with the best: the rate of flips is then exactly that of two logits.
            logits.append(-gap if rank == 1 else logits[-1] - 1.0 - gap)
        return ids, logits

    def answer(
        self,
        count: int,
        *,
        sampling: Sampling = Sampling(),
        noise: random.Random | None = None,
        sd: float = 0.0,
        corruption: Corruption | None = None,
    ) -> list[Token]:
        """``count`` tokens. ``noise`` with ``sd`` > 0 disturbs logits; ``corruption`` replaces tokens."""
        chance = random.Random(sampling.seed) if sampling.temperature > 0 else None
        wrong = _Wrong(corruption, self._prefix.digest()) if corruption else None
        tokens = []
        for position in range(count):
            ids, logits = self.candidates(position)
            if sd and noise is not None:
                logits = [logit + noise.gauss(0.0, sd) for logit in logits]
            token = _pick(ids, logits, sampling.temperature, chance)
            tokens.append(wrong.replace(position, token) if wrong else token)
        return tokens


class _Wrong:
    """Decides which positions are falsified, and by what."""

    def __init__(self, corruption: Corruption, prompt: bytes) -> None:
        self._corruption = corruption
        self._prefix = blake2b(corruption.key.encode() + b"\0" + prompt, digest_size=16)

    def replace(self, position: int, token: Token) -> Token:
        state = self._prefix.copy()
        state.update(position.to_bytes(4, "big"))
        digest = state.digest()
        if int.from_bytes(digest[:4], "big") >= self._corruption.fraction * 2**32:
            return token
        size = len(VOCABULARY)
        text = VOCABULARY[int.from_bytes(digest[4:6], "big") % size]
        if text == token.text:
            text = VOCABULARY[(VOCABULARY.index(text) + 1) % size]
        if self._corruption.quiet:
            return Token(text, token.logprob, ((text, token.logprob), *token.top[1:]), wrong=True)
        # Attention over somebody else's keys: nearly flat, every word about as unlikely as the next.
        flat = -math.log(size) + 2.0 * digest[6] / 255
        spread = tuple((VOCABULARY[(digest[7 + n] * 2 + n) % size], flat - 0.1 * n) for n in range(1, 5))
        return Token(text, flat, ((text, flat), *spread), wrong=True)


def _pick(ids: list[int], logits: list[float], temperature: float, chance: random.Random | None) -> Token:
    weights = [math.exp(logit) for logit in logits]
    total = math.log(sum(weights) + _TAIL)
    if chance is None:
        chosen = max(range(len(logits)), key=logits.__getitem__)
    else:
        best, heat = max(logits), max(temperature, 1e-3)
        chosen = chance.choices(range(len(ids)), [math.exp((logit - best) / heat) for logit in logits])[0]
    ranked = sorted(range(len(ids)), key=logits.__getitem__, reverse=True)
    top = tuple((VOCABULARY[ids[index]], logits[index] - total) for index in ranked)
    return Token(VOCABULARY[ids[chosen]], logits[chosen] - total, top)
