"""What one probe sends, and what is kept of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.paths.pool_settings import PoolSettings
from controlplane.paths.requests import DROPPED_REASON, SERVED_BY, Reply
from controlplane.paths.sane import alternatives_of, count_of, logprobs_of, text_of, tokens_of
from controlplane.paths.view import PoolView
from policy.parity import Answer
from policy.probes.facts import ProbeResult
from policy.probes.prompts import Prompt, salt_prompt

Json = dict[str, Any]

OBJECTIVE_HEADER = "x-llm-d-inference-objective"
FAIRNESS_HEADER = "x-llm-d-inference-fairness-id"
PROBE_TOKENS = 16
PARITY_TOKENS = 48
ALTERNATIVES = 5


def body_of(
    ask: Mapping[str, Any], prompts: Mapping[str, Prompt], settings: PoolSettings, *, nonce: str
) -> Json:
    """The completion to ask for. `cache_salt` keeps engines from answering out of what an earlier ask left behind:
    a reference that hits the cache of the path under test would repeat its faults, and a prompt that is sent again
    after a worker was lost would seem to come through the transfer. `nonce` is new for every sending.

    Golden outputs need their own salt in the text again, so there `cache_salt` alone keeps caches away. An engine or
    router that ignores it would answer the second time from what the first left behind: hits of the prefix cache
    would pass for a transfer, and a fault of the transfer would not be seen. Compare with `direct` there, whose text
    is new each time.
    """
    return {
        "model": settings.model,
        "prompt": salt_prompt(prompts[ask["prompt"]], ask["salt"]),
        "cache_salt": f"{ask['salt']}-{ask['number']}-{nonce}",
        "max_tokens": ask.get("tokens", PROBE_TOKENS),
        "temperature": 0,
        "logprobs": ALTERNATIVES if ask.get("tokens") else 1,
    }


def headers_of(ask: Mapping[str, Any], settings: PoolSettings, strict_header: str) -> dict[str, str]:
    """Headers of a request through the gateway: pinned where the ask names a revision."""
    named = {
        FAIRNESS_HEADER: settings.fairness_id,
        OBJECTIVE_HEADER: settings.objective,
        strict_header: ask["revision"],
    }
    return {name: value for name, value in named.items() if name and value}


def kept_of(ask: Mapping[str, Any], reply: Reply, pool: PoolView) -> Json:
    """The evidence of one answer, as JSON that can be stored whatever the engine said."""
    strict = pool.router.settings.strict_header
    served = reply.headers.get(SERVED_BY, "").rpartition(":")[0]
    details = reply.usage.get("prompt_tokens_details")
    kept: Json = {
        "number": ask["number"],
        "status": reply.status,
        "detail": text_of(reply.detail),
        "seconds": round(reply.seconds, 4),
        "dropped_reason": text_of(reply.headers.get(DROPPED_REASON)),
        "stamped": text_of(reply.headers.get(strict)) if strict else "",
        "prefill": ask.get("prefill", ""),
        "decode": ask.get("pod") or next((pod.name for pod in pool.pods if pod.ip and pod.ip == served), ""),
        "prompt_tokens": count_of(reply.usage.get("prompt_tokens")),
        "cached_tokens": count_of(details.get("cached_tokens")) if isinstance(details, Mapping) else None,
        "output_tokens": count_of(reply.usage.get("completion_tokens")),
        "finish": text_of(reply.choice.get("finish_reason")) or None,
    }
    said = reply.choice.get("logprobs")
    if ask.get("tokens") and isinstance(said, Mapping) and (tokens := tokens_of(said.get("tokens"))):
        kept["tokens"] = tokens
        kept["logprobs"] = logprobs_of(said.get("token_logprobs"))
        kept["alternatives"] = alternatives_of(said.get("top_logprobs"))
    return kept


def result_of(ask: Mapping[str, Any], kept: Mapping[str, Any]) -> ProbeResult:
    """What policy judges. The salt stands in front of the prompt and is used once (that of golden outputs with a new
    `cache_salt` each time), so prompt tokens that were found in a cache can only have come through the KV transfer."""
    return ProbeResult(
        number=int(ask["number"]),
        asked=str(ask["revision"]),
        warmup=bool(ask.get("warmup")),
        status=kept["status"],
        dropped_reason=kept["dropped_reason"],
        stamped=kept["stamped"],
        decode=kept["decode"],
        prefill=kept["prefill"],
        direct=bool(ask.get("prefill")),
        prompt_tokens=kept["prompt_tokens"],
        external_tokens=kept["cached_tokens"],
        output_tokens=kept["output_tokens"],
        detail=kept["detail"],
    )


def answer_of(ask: Mapping[str, Any], kept: Mapping[str, Any], groups: Mapping[str, str]) -> Answer | None:
    """An answer for parity; None where there is nothing to compare, or where it is not known that the revision which
    was asked for gave it. `groups` maps the names of decode groups to their revisions."""
    tokens = tokens_of(kept.get("tokens"))  # also what an older version kept as it came
    if kept["status"] != 200 or not tokens:
        return None
    served = kept["stamped"] or groups.get(kept["decode"], "")
    if not ask.get("pod") and (not served or served != (ask["revision"] or served)):
        return None
    logprobs = tuple(each for each in logprobs_of(kept["logprobs"]) if each is not None)
    whole = len(logprobs) == len(tokens)
    alternatives = tuple(alternatives_of(kept["alternatives"]))
    return Answer(
        tokens=tuple(tokens),
        logprobs=logprobs if whole else (),
        alternatives=alternatives if len(alternatives) == len(tokens) else (),
        cut=kept["finish"] == "length",
        disaggregated=bool(kept["cached_tokens"]),
    )
