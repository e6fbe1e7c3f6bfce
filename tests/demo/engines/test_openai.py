"""The API of an engine, as clients of vLLM use it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.demo.engines.cluster import Cluster, cluster, pod, until

MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is a lease?"}]


async def events(c: Cluster, name: str, path: str, **body: Any) -> list[dict[str, Any]]:
    url = f"http://{c.address(name)}{path}"
    async with c.client.post(url, json={"temperature": 0, "stream": True, **body}) as answer:
        assert answer.status == 200 and answer.content_type == "text/event-stream"
        lines = [line for line in (await answer.text()).split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_models_version_and_health() -> None:
    async def scenario() -> None:
        options = {"model": "/models/llama", "extra": ["--served-model-name", "llama"], "max_model_len": 4096}
        async with cluster(pod("d", "decode", 1, version="0.33.0", **options)) as c:
            models = json.loads((await c.get("d", "/v1/models"))[1])["data"]
            assert [(m["id"], m["root"], m["max_model_len"]) for m in models] == [
                ("llama", "/models/llama", 4096)
            ]
            assert json.loads((await c.get("d", "/version"))[1]) == {"version": "0.33.0"}
            assert (await c.get("d", "/health"))[0] == 200
            assert (await c.get("d", "/nothing"))[0] == 404
            status, _ = await c.ask("d", model="llama")
            assert status == 200
            status, answer = await c.ask("d", model="other")
            assert status == 404 and answer["error"]["type"] == "NotFoundError"

    asyncio.run(scenario())


def test_a_stream_says_what_the_whole_answer_says() -> None:
    async def scenario() -> None:
        async with cluster(pod("p", "prefill", 1), pod("d", "decode", 2)) as c:
            whole = await c.text("d", "tell me", max_tokens=10)
            seen = await events(c, "d", "/v1/completions", prompt="tell me", max_tokens=10, logprobs=2)
            assert "".join(each["choices"][0]["text"] for each in seen) == whole
            assert [each["choices"][0]["finish_reason"] for each in seen] == [None] * 9 + ["length"]
            assert [each["choices"][0]["logprobs"]["text_offset"] for each in seen][:2] == [[0], [5]]
            _, chat = await c.ask("d", messages=MESSAGES, max_tokens=8)
            seen = await events(
                c,
                "d",
                "/v1/chat/completions",
                messages=MESSAGES,
                max_tokens=8,
                stream_options={"include_usage": True},
            )
            said = "".join(each["choices"][0]["delta"]["content"] for each in seen[:-1])
            assert said == chat["choices"][0]["message"]["content"]
            assert seen[0]["choices"][0]["delta"]["role"] == "assistant"
            assert seen[-1]["choices"] == [] and seen[-1]["usage"]["completion_tokens"] == 8
            assert seen[-1]["usage"] == chat["usage"] | {
                "prompt_tokens_details": seen[-1]["usage"]["prompt_tokens_details"]
            }

    asyncio.run(scenario())


def test_a_streamed_request_takes_its_kv_from_prefill_too() -> None:
    async def scenario() -> None:
        async with cluster(pod("p", "prefill", 1), pod("d", "decode", 2)) as c:
            url = f"http://{c.address('d')}/v1/completions"
            body = {"prompt": "x" * 400, "stream": True, "temperature": 0}
            async with c.client.post(
                url, json=body, headers={"x-prefiller-host-port": c.address("p")}
            ) as answer:
                await answer.read()
            rows = (await c.admin_get("/books"))["rows"]
            assert [(row["kv"], row["tokens"], row["status"]) for row in rows] == [("transferred", 16, 200)]

    asyncio.run(scenario())


def test_who_hangs_up_in_the_middle_of_a_stream_is_an_aborted_request() -> None:
    async def scenario() -> None:
        async with cluster(pod("d", "decode", 1), scale=1.0) as c:
            url = f"http://{c.address('d')}/v1/completions"
            body = {"prompt": "x", "stream": True, "max_tokens": 1000, "ignore_eos": True}
            async with c.client.post(url, json=body) as answer:
                await answer.content.readline()
                answer.close()
            await until(lambda: c.engine("d").metrics.value("vllm:request_success", "abort") == 1)
            seen = await c.metrics("d")
            assert seen["vllm:num_requests_running", ""] == 0 and seen["vllm:kv_cache_usage_perc", ""] == 0
            assert (await c.admin_get("/books"))["rows"][0]["status"] == 0

    asyncio.run(scenario())


def test_log_probabilities_in_both_forms() -> None:
    async def scenario() -> None:
        async with cluster(pod("d", "decode", 1)) as c:
            _, plain = await c.ask("d", "hello", max_tokens=3, logprobs=2)
            shown = plain["choices"][0]["logprobs"]
            assert "".join(shown["tokens"]) == plain["choices"][0]["text"]
            assert all(len(top) == 2 for top in shown["top_logprobs"])
            for token, value, top in zip(
                shown["tokens"], shown["token_logprobs"], shown["top_logprobs"], strict=True
            ):
                assert top[token] == value == max(top.values()) < 0
            _, chat = await c.ask("d", messages=MESSAGES, max_tokens=3, logprobs=True, top_logprobs=4)
            content = chat["choices"][0]["logprobs"]["content"]
            assert [len(each["top_logprobs"]) for each in content] == [4, 4, 4]
            assert bytes(content[0]["bytes"]).decode() == content[0]["token"]

    asyncio.run(scenario())


def test_seeds_choices_stops_and_natural_ends() -> None:
    async def scenario() -> None:
        async with cluster(pod("d", "decode", 1)) as c:
            warm = {"temperature": 1.0, "max_tokens": 24}
            first = await c.text("d", "hello", seed=4, **warm)
            assert first == await c.text("d", "hello", seed=4, **warm)
            assert first != await c.text("d", "hello", seed=5, **warm)
            assert await c.text("d", "hello", **warm) != await c.text("d", "hello", **warm)
            status, answer = await c.ask("d", ["one", "two"], n=2)
            assert status == 200 and [each["index"] for each in answer["choices"]] == [0, 1, 2, 3]
            texts = [each["text"] for each in answer["choices"]]
            assert texts[0] == texts[1] != texts[2] == texts[3]
            assert await c.text("d", [1, 2, 3]) != await c.text("d", [1, 2, 4])
            greedy = await c.text("d", "hello", max_tokens=8)
            stop = greedy.split()[3]
            assert await c.text("d", "hello", max_tokens=8, stop=[stop]) == " " + " ".join(greedy.split()[:3])
            _, natural = await c.ask("d", messages=MESSAGES)
            assert natural["choices"][0]["finish_reason"] == "stop"
            assert 32 <= natural["usage"]["completion_tokens"] <= 287

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"prompt": {}}, "prompt is a text"),
        ({"prompt": []}, "prompt is a text"),
        ({"prompt": "x" * 40_000}, "maximum context length is 8192"),
        ({"prompt": "x", "max_tokens": 8192}, "maximum context length is 8192"),
        ({"prompt": "x", "max_tokens": 0}, "at least 1"),
        ({"prompt": "x", "max_tokens": "3"}, "max_tokens is a whole number"),
        ({"prompt": "x", "temperature": "hot"}, "temperature is a number"),
        ({"prompt": "x", "n": 0}, "choices"),
        ({"prompt": "x", "n": 2, "stream": True}, "choices"),
        ({"messages": "hello"}, "messages is a list"),
    ],
)
def test_what_cannot_be_served_is_said(body: dict[str, Any], says: str) -> None:
    async def scenario() -> None:
        async with cluster(pod("d", "decode", 1)) as c:
            status, answer = await c.ask("d", **body)
            assert status == 400 and says in answer["error"]["message"]
            rows = (await c.admin_get("/books"))["rows"]
            assert [(row["status"], row["tokens"]) for row in rows] == [(400, 0)]

    asyncio.run(scenario())


def test_a_body_that_is_no_json() -> None:
    async def scenario() -> None:
        async with cluster(pod("d", "decode", 1)) as c:
            for data in (b"{", b"[]"):
                async with c.client.post(f"http://{c.address('d')}/v1/completions", data=data) as answer:
                    assert answer.status == 400

    asyncio.run(scenario())


def test_engines_with_jitter_usually_agree_and_not_always() -> None:
    async def scenario() -> None:
        async with cluster(pod("d", "decode", 1), pod("e", "decode", 2), jitter=0.01) as c:
            same = total = 0
            for number in range(40):
                one = (await c.text("d", f"prompt {number}", max_tokens=32)).split()
                two = (await c.text("e", f"prompt {number}", max_tokens=32)).split()
                same += sum(a == b for a, b in zip(one, two, strict=True))
                total += 32
            assert 0.96 < same / total < 1

    asyncio.run(scenario())
