"""The program itself, as a launcher starts it."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import aiohttp
import pytest

from deploy.demo.engines.__main__ import arguments
from deploy.demo.engines.roles import engine_pair, engine_role
from tests.demo.engines.cluster import NAMESPACE, fake_api, free_port, kubeconfig_for, pod


def test_the_program_says_when_it_is_ready_answers_and_ends() -> None:
    async def scenario(folder: Path) -> None:
        async with fake_api() as api, aiohttp.ClientSession() as client:
            admin, port = free_port(), free_port()
            words = [
                "--namespace",
                NAMESPACE,
                "--admin-port",
                str(admin),
                "--port",
                str(port),
                "--time-scale",
                "0.01",
            ]
            kubeconfig = kubeconfig_for("http://127.0.0.1:9", folder)
            program = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "deploy.demo.engines",
                "--kubeconfig",
                str(kubeconfig_for(api.url, folder)),
                *words,
            )
            assert kubeconfig.exists()
            for number in range(20):
                api.put(pod(f"e{number}", "decode" if number % 2 else "prefill", number + 1))
            try:
                await _until_ready(client, f"http://127.0.0.1:{admin}/ready")
                address = api.pods["e1"]["status"]["podIP"]
                prefill = api.pods["e0"]["status"]["podIP"]
                async with client.post(
                    f"http://{address}:{port}/v1/completions",
                    json={"prompt": "hello" * 50, "temperature": 0},
                    headers={"x-prefiller-host-port": f"{prefill}:{port}", "x-request-id": "one"},
                ) as answer:
                    assert answer.status == 200
                async with client.get(f"http://127.0.0.1:{admin}/books") as answer:
                    rows = (await answer.json())["rows"]
                assert [(row["request_id"], row["kv"]) for row in rows] == [("one", "transferred")]
            finally:
                program.terminate()
                assert await asyncio.wait_for(program.wait(), 10) == 0

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder)))


async def _until_ready(client: aiohttp.ClientSession, url: str) -> None:
    for _ in range(200):
        try:
            async with client.get(url) as answer:
                if answer.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.05)
    raise AssertionError("not ready in time")


def test_an_impossible_jitter_is_refused_before_anything_listens() -> None:
    async def scenario(folder: Path) -> None:
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "deploy.demo.engines",
            *("--kubeconfig", str(kubeconfig_for("http://127.0.0.1:9", folder))),
            *("--admin-port", str(free_port()), "--jitter", "0.9"),
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await program.communicate()
        assert program.returncode != 0 and b"jitter 0.9 is not in" in said

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder)))


def test_the_command_line_needs_a_cluster_and_an_admin_port() -> None:
    with pytest.raises(SystemExit):
        arguments(["--admin-port", "1"])
    found = arguments(["--kubeconfig", "f", "--admin-port", "1", "--namespace", "a", "--namespace", "b"])
    assert (found.namespace, found.port, found.jitter) == (["a", "b"], 8000, 0.0)


def test_roles_are_what_the_engine_reads() -> None:
    prefill, decode = engine_pair(4, 2, "meta-llama/Llama-3.1-8B", "0.33.0", tp=2, model_revision="abc")
    assert (prefill["name"], prefill["spec"]["replicas"]) == ("prefill", 4)
    template = decode["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    container = template["spec"]["containers"][0]
    assert container["image"].endswith(":v0.33.0") and template["metadata"]["labels"] == {
        "llm-d.ai/role": "decode"
    }
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert '"kv_role": "kv_consumer"' in container["args"][-1]
    assert engine_role("decode", 1, group={"size": 2})["spec"]["leaderWorkerTemplate"]["size"] == 2
