"""`make demo` and `make tour` with Python alone: ready, the story as the API shows it, nothing left afterwards."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from deploy.demo.client import Client
from deploy.demo.folder import DEMOS, ROOT
from deploy.demo.story import (
    BATCH,
    CAST,
    CHAT,
    CHAT_US,
    CODE,
    CODE_US,
    EMBED,
    GUARD,
    LAB,
    OPERATOR,
    POOLS,
    TOOLS,
    ServedPool,
)
from tests.demo.running import RunningDemo, alive, running_demo, until

pytestmark = pytest.mark.timeout(900)
Json = dict[str, Any]
API = "/api/v1"
TOLD_WITHIN_S = 600.0


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDemo]:
    """One demo with its story for all tests of this module; the last of them ends it.

    It starts over a demo that was killed in the middle of its start, and over what another version has left.
    """
    folder = tmp_path_factory.mktemp("demo")
    killed = RunningDemo(folder / "killed")
    until("it starts its processes", lambda: "- migrations" in killed.output(), 120)
    family = killed.family()
    killed.end(signal.SIGKILL)
    until("everything ends with the launcher", lambda: not alive(family), 30)
    garbage = left_by_another_version()
    with running_demo(folder / "out") as running:
        assert not garbage.exists()
        yield running


def left_by_another_version() -> Path:
    """A data folder that nothing here can read, and the note that names it."""
    data = Path(tempfile.mkdtemp(prefix="lockstep-demo-"))
    (data / "postgres").mkdir()
    (data / "postgres" / "PG_VERSION").write_text("9.6\n")
    (data / "facts.json").write_text("{}")
    home = DEMOS / str(max(int(home.name) for home in DEMOS.iterdir() if home.name.isdecimal()) + 1)
    home.mkdir()
    (home / "lock").touch()
    (home / "data").write_text(str(data))
    return data


@pytest.fixture(scope="module")
def tour(demo: RunningDemo) -> Iterator[subprocess.Popen[str]]:
    """The tour, beside the story."""
    command = [sys.executable, "-m", "deploy.demo.tour", str(demo.facts_file)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def told(demo: RunningDemo, tour: subprocess.Popen[str]) -> Client:
    """The operator's client, once every chapter is told as it was meant."""
    file = Path(demo.facts()["story"])

    def states() -> list[str]:
        return [chapter["state"] for chapter in json.loads(file.read_text()).values()]

    until("the story is told", lambda: set(states()) <= {"told", "failed"}, TOLD_WITHIN_S)
    assert set(states()) == {"told"}, demo.output()
    return client(demo)


def client(demo: RunningDemo) -> Client:
    """The operator's, with a token."""
    facts = demo.facts()
    return Client(facts["address"], token=facts["people"][OPERATOR]["token"])


def pool_of(by: Client, pool: ServedPool) -> Json:
    """A pool as the API shows it."""
    rows = by.list(f"{API}/pools", cluster__name=pool.cluster, namespace=pool.namespace, name=pool.name)
    return by.get(f"{API}/pools/{rows[0]['id']}")


def set_of(by: Client, pool: ServedPool) -> Json:
    """Its set."""
    return by.list(f"{API}/workloads", cluster__name=pool.cluster, namespace=pool.namespace, name=pool.name)[
        0
    ]


def operations_of(by: Client, pool: ServedPool) -> list[Json]:
    """Its operations, the newest first."""
    rows = by.list(f"{API}/operations", cluster__name=pool.cluster, namespace=pool.namespace)
    return [by.get(f"{API}/operations/{row['id']}") for row in rows if row["title"].endswith(f"/{pool.name}")]


def listens(url: str) -> bool:
    """Whether somebody is behind the address."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", urlsplit(url).port or 0)) == 0


def test_ready_says_who_there_is_and_what_is_simulated(demo: RunningDemo) -> None:
    said, facts = demo.output(), demo.facts()
    assert said.index("Simulated: three Kubernetes clusters") < said.index(
        f"Lockstep is ready: {facts['address']}"
    )
    assert set(facts["people"]) == set(CAST)
    assert all(person["password"] in said for person in facts["people"].values())
    Client(facts["address"]).sign_in("tove.s", facts["people"]["tove.s"]["password"])
    by = client(demo)
    assert {each["name"] for each in by.list(f"{API}/clusters")} == set(facts["clusters"])
    assert len(by.list(f"{API}/pools")) == len(by.list(f"{API}/workloads")) == len(POOLS)
    with pytest.raises(Exception, match="403|404"):
        reader = Client(facts["address"], token=facts["people"]["vic"]["token"])
        reader.get(f"{API}/workloads/{set_of(by, CHAT)['id']}")


def test_the_story_can_be_seen(told: Client) -> None:
    open_requests = told.list(f"{API}/change-requests", state="open", cluster=CODE.cluster)
    plan = next(each for each in open_requests if each["subject_kind"] != "operations.hold")
    assert plan["counted"] == ["mira.l"] and len(plan["missing"]) == 1 and plan["requester"] == "jonas.w"

    at_hold = operations_of(told, CHAT)[0]
    assert at_hold["state"] == "waiting" and at_hold["gates"]["verdict"] == "green", at_hold["status"]
    assert len(set_of(told, CHAT)["revisions"]) == 2

    held = operations_of(told, GUARD)[0]
    assert held["state"] == "held" and held["finding"]["code"] == "gate-red", held["finding"]
    assert "TTFT" in held["finding"]["sentence"]

    assert operations_of(told, CODE_US)[0]["state"] == "working"
    assert [each["state"] for each in operations_of(told, CHAT_US)] == ["succeeded", "aborted"]

    series = told.list(f"{API}/probe-series", pool=pool_of(told, BATCH)["id"])[0]
    assert {each["id"] for each in series["verdict"]["findings"] if each["effect"] == "red"} == {
        "short-lease"
    }
    combinations = told.list(f"{API}/combinations", namespace=BATCH.namespace, state="verified")
    live = set_of(told, BATCH)["revisions"]
    assert any(each["pinned"] and each["revision"] not in live for each in combinations), "a way back"

    lab = told.list(f"{API}/clusters", name=LAB)[0]
    assert lab["stale"] and lab["problem"], lab


def test_numbers_are_measured(told: Client) -> None:
    def shares() -> Json:
        found: Json = pool_of(told, CHAT)["measured"]
        return found

    until(
        "measured shares of both revisions", lambda: len(shares().get("shares", {}).get("lanes", [])) == 2, 60
    )
    assert shares()["shares"]["total"] > 0
    assert pool_of(told, EMBED)["measured"]["state"] == "no-traffic"


def test_history_is_kept(told: Client) -> None:
    outcomes = {each["outcome"] for each in told.list(f"{API}/update-records")}
    assert {"succeeded", "aborted"} <= outcomes


def test_the_tour_comes_out_as_it_should(told: Client, tour: subprocess.Popen[str]) -> None:
    said, _ = tour.communicate(timeout=TOLD_WITHIN_S)
    assert tour.returncode == 0, said
    for words in ("is verified", "Red: TTFT", "Aborted", "restored without a vote", "All of it came out"):
        assert words in said
    assert len(set_of(told, TOOLS)["revisions"]) == 1


def test_ctrl_c_leaves_nothing(demo: RunningDemo) -> None:
    facts, family = demo.facts(), demo.family()
    addresses = [facts["address"], *(world["public_url"] for world in facts["clusters"].values())]
    assert all(listens(address) for address in addresses)
    assert len(family) > 30
    assert demo.end(signal.SIGINT) == 0, demo.output()
    assert not alive(family)
    assert not any(listens(address) for address in addresses)
    assert not demo.facts_file.parent.exists()


def test_a_cluster_that_dies_ends_the_demo_by_name(tmp_path: Path) -> None:
    demo = RunningDemo(tmp_path / "out", "--no-story")
    try:
        until("it starts its processes", lambda: "- migrations" in demo.output(), 120)
        family = demo.family()
        world = next(
            each for each in family if "deploy.demo.world" in each.cmdline() and LAB in each.cmdline()
        )
        world.kill()
        assert demo.process.wait(120) == 1
    finally:
        demo.process.kill()
    assert f"cluster {LAB}: ended by itself" in demo.output()
    assert f"{LAB}.log" in demo.output()
    assert not alive(family)


def test_a_tour_without_a_usable_demo_says_so(tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, "-m", "deploy.demo.tour", str(tmp_path / "facts.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0 and "REAL=1" in done.stderr
