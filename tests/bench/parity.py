"""How often parity is red: for a pair that is well, and for one that corrupts two tokens of a hundred. One JSON object.

    python tests/bench/parity.py [--runs 200] [--jitter 0.02]

Answers come from the demo engines' own answer code (deploy/demo/engines/tokens.py), without HTTP between; prompts,
lengths and repetitions are those of a series, the verdict is the product's. `--jitter` is the noise on the lead of the
best token over the next in nats, of path and reference alike. Corrupted tokens keep healthy log-probabilities: the
mildest error that there is. Exits 1 when more than one in a hundred is red by chance (and three standard errors), or
the corrupt pair is found in fewer than 95 of a hundred.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy.demo.engines.tokens import Corruption, Model
from policy.parity import Answer, ParityRule, PromptEvidence, judge_parity
from policy.probes import fixed_prompts, fresh_salts, salt_prompt

TOKENS = 48  # controlplane.paths.probing.PARITY_TOKENS
REFERENCES = 2
CORRUPT = 0.02
LEAST_FOUND = 0.95
WRONG = ("red", "garbage")


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jitter", type=float, default=0.02)
    asked = parser.parse_args()
    begun = time.monotonic()
    allowed = 0.01 + 3 * math.sqrt(0.01 * 0.99 / asked.runs)
    result: dict[str, Any] = {
        "benchmark": "parity",
        "answers": "the demo engines' own answer code, without HTTP",
        "runs": asked.runs,
        "prompts": len(fixed_prompts()),
        "tokens": TOKENS,
        "margin": ParityRule().margin,
        "most_false_red": round(allowed, 4),
        "least_found": LEAST_FOUND,
    }
    for name, jitter in (("stated", asked.jitter), ("twice", 2 * asked.jitter)):
        for kind, part in (("false_red", 0.0), ("found", CORRUPT)):
            verdicts = [judge(jitter, part, seed=run) for run in range(asked.runs)]
            result[f"{kind}_at_{name}_jitter"] = sum(each in WRONG for each in verdicts) / asked.runs
            undecided = sum(each == "not-evaluable" for each in verdicts) / asked.runs
            result[f"{kind}_at_{name}_jitter_undecided"] = undecided
    result["seconds"] = round(time.monotonic() - begun, 1)
    false = [result[f"false_red_at_{name}_jitter"] for name in ("stated", "twice")]
    found = [result[f"found_at_{name}_jitter"] for name in ("stated", "twice")]
    result["passed"] = max(false) <= allowed and min(found) >= LEAST_FOUND
    print(json.dumps(result, indent=2))
    return 0 if result["passed"] else 1


def judge(jitter: float, corrupt: float, *, seed: int) -> str:
    """The verdict over one series: every prompt once along the path and twice at the reference."""
    corruption = Corruption(corrupt, f"pair/{seed}", quiet=True) if corrupt else None
    evidence = list(series(jitter, corruption, seed))
    return judge_parity(evidence, reference="direct", seed=seed).verdict


def series(jitter: float, corruption: Corruption | None, seed: int) -> Iterator[PromptEvidence]:
    """What a series brings back; engines that answer have noise of their own."""
    salts, noise = fresh_salts(seed=seed), random.Random(seed)
    sd = jitter / math.sqrt(2.0)  # of one logit; the lead is a difference of two
    for prompt in fixed_prompts():
        model = Model("weights", salt_prompt(prompt, next(salts)).encode())
        path = answer(model, noise, sd, corruption)
        direct = tuple(answer(model, noise, sd, None) for _ in range(REFERENCES))
        yield PromptEvidence(prompt.id, (path,), direct)


def answer(model: Model, noise: random.Random, sd: float, corruption: Corruption | None) -> Answer:
    """One answer as controlplane.paths.asks reads it."""
    tokens = model.answer(TOKENS, noise=noise, sd=sd, corruption=corruption)
    return Answer(
        tokens=tuple(each.text for each in tokens),
        logprobs=tuple(each.logprob for each in tokens),
        alternatives=tuple(dict(each.top) for each in tokens),
        cut=True,
        disaggregated=True,
    )


if __name__ == "__main__":
    sys.exit(main())
