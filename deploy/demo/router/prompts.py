"""What a request body says: the model, and about how many tokens its prompt has."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from deploy.demo.router.scheduling import CHARACTERS_PER_TOKEN

# Path endings that each parser claims; passthrough-parser takes whatever is left.
CLAIMS = {
    "anthropic-parser": ("/v1/messages",),
    "openai-parser": (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/conversations",
        "/v1/embeddings",
        "/v1/responses",
    ),
    "vllmhttp-parser": ("/inference/v1/generate",),
}


class BadRequest(ValueError):
    """A body that no parser accepts: answered with 400 before anything is counted as waiting."""


def read_prompt(path: str, body: bytes, parsers: Collection[str]) -> tuple[str, int]:
    """(model, tokens of the prompt, estimated) of a request; BadRequest without JSON, model or parser."""
    ending = path.partition("?")[0].rstrip("/")
    if not any(ending.endswith(claim) for parser in parsers for claim in CLAIMS.get(parser, ())):
        if "passthrough-parser" not in parsers:
            raise BadRequest(f"no parser for path {ending}")
        return "", len(body) // CHARACTERS_PER_TOKEN
    try:
        document = json.loads(body)
    except ValueError:
        raise BadRequest("the request body is not valid JSON") from None
    model = document.get("model") if isinstance(document, dict) else None
    if not isinstance(model, str) or not model:
        raise BadRequest("model not found in request body")
    for field in ("messages", "prompt", "input", "token_ids"):
        if field in document:
            return model, _tokens(document[field]) + _tokens(document.get("system"))
    return model, 0


def _tokens(prompt: Any) -> int:
    if isinstance(prompt, list) and prompt and all(isinstance(one, int) for one in prompt):
        return len(prompt)
    return _characters(prompt) // CHARACTERS_PER_TOKEN


def _characters(prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(prompt)
    if isinstance(prompt, list):
        return sum(_characters(one) for one in prompt)
    if isinstance(prompt, dict):
        return _characters(prompt.get("content", prompt.get("text", "")))
    return 0
