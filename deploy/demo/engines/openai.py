"""Requests and answers in the form of the OpenAI API, as vLLM reads and writes them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deploy.demo.engines.jobs import EngineProblem, Job, Reason, Work
from deploy.demo.engines.kv import Prompt
from deploy.demo.engines.spec import EngineSpec
from deploy.demo.engines.tokens import Sampling, Token

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
Doc = dict[str, Any]
_MOST_CHOICES = 16


@dataclass(frozen=True)
class Ask:
    """A parsed request: one job per choice; ``logprobs`` is how many alternatives to show, None for no logprobs."""

    chat: bool
    jobs: tuple[Job, ...]
    logprobs: int | None
    stream: bool
    usage: bool

    @property
    def kept(self) -> bool:
        """Whether it is the prefill half of somebody else's request."""
        return self.jobs[0].keep


def read_ask(body: Any, *, chat: bool, spec: EngineSpec, request_id: str, any_seed: Callable[[], int]) -> Ask:
    """A request for one of an engine's endpoints. EngineProblem (400, 404) for what it cannot serve."""
    if not isinstance(body, dict):
        raise EngineProblem(400, "the body is not a JSON object")
    name = body.get("model") or spec.served_name
    if name != spec.served_name:
        raise EngineProblem(404, f"The model `{name}` does not exist.", "NotFoundError")
    prompts = [_chat_prompt(body)] if chat else _prompts(body.get("prompt"))
    if salt := body.get("cache_salt"):
        prompts = [replace(prompt, salt=str(salt)) for prompt in prompts]
    copies = _whole(body, "n", 1)
    stream = bool(body.get("stream"))
    if (
        not copies
        or copies < 0
        or copies * len(prompts) > _MOST_CHOICES
        or (stream and copies * len(prompts) > 1)
    ):
        raise EngineProblem(
            400, f"up to {_MOST_CHOICES} choices, and one where it is streamed, are simulated"
        )
    most = _most(body, chat)
    for prompt in prompts:
        _check_length(prompt, most, spec)
    transfer = body.get("kv_transfer_params") or {}
    job = Job(
        request_id,
        prompts[0],
        most=most,
        sampling=_sampling(body, any_seed),
        ignore_end=bool(body.get("ignore_eos")),
        stops=_stops(body.get("stop")),
        remote=transfer if transfer.get("do_remote_prefill") else None,
        keep=bool(transfer.get("do_remote_decode")),
    )
    jobs = tuple(replace(job, prompt=prompt) for prompt in prompts for _ in range(copies))
    if len(jobs) > 1 and transfer:
        raise EngineProblem(400, "KV is transferred for one choice only")
    usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return Ask(chat, jobs, _logprobs(body, chat), stream, usage)


def prefill_body(body: Mapping[str, Any]) -> Doc:
    """What a sidecar sends to a prefill engine for a client's request: one token, KV to be kept."""
    sent = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
    sent["max_tokens"] = 1
    if "max_completion_tokens" in sent:
        sent["max_completion_tokens"] = 1
    sent["stream"] = False
    sent["kv_transfer_params"] = {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
    return sent


def problem_body(problem: EngineProblem) -> Doc:
    """vLLM's error document."""
    return {
        "error": {"message": str(problem), "type": problem.kind, "param": None, "code": problem.status},
    }


class Form:
    """Writes the answers to one request."""

    def __init__(self, ask: Ask, spec: EngineSpec) -> None:
        self._ask = ask
        self._base = {
            "id": ("chatcmpl-" if ask.chat else "cmpl-") + ask.jobs[0].request_id,
            "object": "chat.completion" if ask.chat else "text_completion",
            "created": int(time.time()),
            "model": spec.served_name,
        }

    def whole(self, works: list[Work], transfer: Doc | None) -> Doc:
        """The answer to a request that is not streamed."""
        return {
            **self._base,
            "choices": [self._choice(index, work) for index, work in enumerate(works)],
            "usage": _usage(works),
            "kv_transfer_params": transfer,
        }

    def _choice(self, index: int, work: Work) -> Doc:
        text = "".join(token.text for token in work.tokens)
        end = {"finish_reason": work.reason, "stop_reason": None}
        if self._ask.chat:
            message = {"role": "assistant", "content": text, "tool_calls": []}
            return {
                "index": index,
                "message": message,
                "logprobs": self._probabilities(work.tokens, 0),
                **end,
            }
        logprobs = self._probabilities(work.tokens, 0)
        return {"index": index, "text": text, "logprobs": logprobs, **end, "prompt_logprobs": None}

    def chunk(self, token: Token | None, offset: int, reason: Reason | None) -> bytes:
        """One event of a stream; ``offset`` is how much text came before."""
        shown = [token] if token else []
        text = token.text if token else ""
        choice: Doc = {"index": 0, "logprobs": self._probabilities(shown, offset), "finish_reason": reason}
        base = self._base
        if self._ask.chat:
            base = {**base, "object": "chat.completion.chunk"}
            choice["delta"] = {"role": "assistant", "content": text} if not offset else {"content": text}
        else:
            choice["text"] = text
        return _event({**base, "choices": [choice]})

    def last(self, work: Work) -> bytes:
        """The end of a stream, with usage where it was asked for."""
        end = b"data: [DONE]\n\n"
        if not self._ask.usage:
            return end
        kind = {"object": "chat.completion.chunk"} if self._ask.chat else {}
        return _event({**self._base, **kind, "choices": [], "usage": _usage([work])}) + end

    def _probabilities(self, tokens: list[Token], offset: int) -> Doc | None:
        most = self._ask.logprobs
        if most is None:
            return None
        if self._ask.chat:
            return {"content": [_chat_token(token, most) for token in tokens]}
        offsets = []
        for token in tokens:
            offsets.append(offset)
            offset += len(token.text)
        return {
            "text_offset": offsets,
            "token_logprobs": [token.logprob for token in tokens],
            "tokens": [token.text for token in tokens],
            "top_logprobs": [dict(token.top[:most]) | {token.text: token.logprob} for token in tokens],
        }


def _chat_token(token: Token, most: int) -> Doc:
    top = [_one(text, logprob) for text, logprob in token.top[:most]]
    return {**_one(token.text, token.logprob), "top_logprobs": top}


def _one(text: str, logprob: float) -> Doc:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _event(document: Doc) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _usage(works: list[Work]) -> Doc:
    asked = sum(work.job.prompt.tokens for work in works)
    made = sum(len(work.tokens) for work in works)
    cached = sum(work.hit + work.fetched for work in works)
    return {
        "prompt_tokens": asked,
        "completion_tokens": made,
        "total_tokens": asked + made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _prompts(given: Any) -> list[Prompt]:
    if isinstance(given, str):
        return [Prompt(given)]
    if isinstance(given, list) and given:
        if all(isinstance(each, int) for each in given):
            return [Prompt(tuple(given))]
        if all(isinstance(each, str) for each in given):
            return [Prompt(each) for each in given]
        if all(isinstance(each, list) and all(isinstance(token, int) for token in each) for each in given):
            return [Prompt(tuple(each)) for each in given]
    raise EngineProblem(400, "prompt is a text, a list of token ids, or a list of these")


def _chat_prompt(body: Doc) -> Prompt:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise EngineProblem(400, "messages is a list of messages")
    parts = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(each.get("text", "")) for each in content if isinstance(each, dict))
        parts.append(f"<|{message.get('role', 'user')}|>{content or ''}\n")
    return Prompt("".join(parts) + "<|assistant|>")


def _most(body: Doc, chat: bool) -> int | None:
    most = _whole(body, "max_completion_tokens", None) if chat else None
    if most is None:
        most = _whole(body, "max_tokens", None if chat else 16)
    if most is not None and most < 1:
        raise EngineProblem(400, f"max_tokens must be at least 1, got {most}.")
    return most


def _check_length(prompt: Prompt, most: int | None, spec: EngineSpec) -> None:
    if prompt.tokens + (most or 1) > spec.max_length:
        raise EngineProblem(
            400,
            f"This model's maximum context length is {spec.max_length} tokens. However, you requested "
            f"{most or 1} output tokens and your prompt contains {prompt.tokens} input tokens.",
        )


def _sampling(body: Doc, any_seed: Callable[[], int]) -> Sampling:
    heat = body.get("temperature")
    heat = 1.0 if heat is None else heat
    if isinstance(heat, bool) or not isinstance(heat, (int, float)) or not 0 <= heat <= 10:
        raise EngineProblem(400, "temperature is a number from 0 to 10")
    seed = _whole(body, "seed", None)
    return Sampling(float(heat), (any_seed() if seed is None else seed) if heat else 0)


def _stops(given: Any) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else given or []
    return tuple(str(each) for each in stops if each)


def _logprobs(body: Doc, chat: bool) -> int | None:
    if not chat:
        return _whole(body, "logprobs", None)
    return (_whole(body, "top_logprobs", 0) or 0) if body.get("logprobs") else None


def _whole(body: Doc, name: str, usual: int | None) -> int | None:
    value = body.get(name)
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, int):
        raise EngineProblem(400, f"{name} is a whole number")
    return value
