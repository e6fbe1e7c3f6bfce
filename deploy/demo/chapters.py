"""The chapters of the story: what has happened, and what waits, when somebody looks at the demo.

Each is played through the REST API by the people of the cast; what the world does (an engine with a short lease, an API
that does not answer) is done to the world, never to Lockstep's database.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from deploy.demo.client import Client
from deploy.demo.office import API, TIMES_TOO, Office, Unexpected, images
from deploy.demo.story import (
    BATCH,
    CHAT,
    CHAT_US,
    CODE,
    CODE_US,
    EVAL,
    GUARD,
    LAB,
    NEW,
    OLD,
    OPERATOR,
    TOOLS,
    ServedPool,
)
from deploy.demo.world import WorldFacts
from deploy.rig.api import Api

Json = dict[str, Any]
# A build that answers rightly, twenty times later than it should.
SLOW_BUILD = {"ENGINE_FAULTS": json.dumps({"slow": {"factor": 20}})}


@dataclass(frozen=True)
class Stage:
    """Who plays and where."""

    office: Office
    worlds: Mapping[str, WorldFacts]

    def set_of(self, by: Client, pool: ServedPool) -> Json:
        """The set of a pool."""
        return self.office.workload(by, pool.cluster, pool.namespace, pool.name)

    def upgraded(self, pool: ServedPool, image: str, reason: str, *, env: Json | None = None) -> Json:
        """An upgrade of a pool to its verified end; the operation."""
        office = self.office
        by = office.program(OPERATOR)
        number = office.upgrade(by, self.set_of(by, pool)["id"], reason, images(image, env=env))
        return office.reached(by, number, "succeeded", holds=3)


@dataclass(frozen=True)
class Chapter:
    """``tell`` plays it and returns the sentence about it. Raises Unexpected and what clients raise."""

    name: str
    tell: Callable[[Stage], str]


def waits_for_approval(stage: Stage) -> str:
    """Asked for by one person, edited by another, approved by a third; one vote is missing."""
    office = stage.office
    by = office.program("jonas.w")
    reason = "Picks up the KV lease fix; decode concurrency stays."
    plan = office.draft(by, stage.set_of(by, CODE)["id"], reason, images(NEW))
    editor = office.program("petra.h")
    editor.get(f"{API}/plans/{plan}")
    editor.patch(f"{API}/plans/{plan}", {"reason": f"{reason} Ticket OPS-5127."}, if_match=editor.etag)
    office.checked(by, plan)
    request = office.ask(by, plan)
    shown = office.vote(request, ["mira.l"], "Hazards read, fine.")
    return (
        f"{CODE.address}: change request {request} has {len(shown['counted'])} of {len(shown['slots'])} votes; "
        "tove.s may cast the other one, jonas.w (asked) and petra.h (edited) may not."
    )


def stands_at_a_hold(stage: Stage) -> str:
    """Half of the groups are new; one step approval is missing."""
    office = stage.office
    by = office.program(OPERATOR)
    number = office.upgrade(
        by,
        stage.set_of(by, CHAT)["id"],
        "vLLM 0.33.0 for the chat model.",
        images(NEW),
        holds=["first-complete-row", "half"],
    )
    office.reached(by, number, "waiting", holds=1)
    request = office.open_holds(by, number)[0]
    office.vote(request["id"], ["mira.l"], "Parity list read, fine.")
    return (
        f"{CHAT.address}: upgrade {number} stands at its second hold, half way; one more vote lets it go on."
    )


def red_gate(stage: Stage) -> str:
    """The new build is slow: the rollout stays where it is."""
    office = stage.office
    by = office.program(OPERATOR)
    number = office.upgrade(
        by,
        stage.set_of(by, GUARD)["id"],
        "Nightly build of the guard.",
        images(NEW, env=SLOW_BUILD),
        gates=TIMES_TOO,
    )
    shown = office.reached(by, number, "held")
    return f"{GUARD.address}: upgrade {number} is held. {shown['finding']['sentence']}"


def short_lease(stage: Stage) -> str:
    """Two good upgrades, then the newer revision begins to drop KV blocks before they are read."""
    office = stage.office
    by = office.program(OPERATOR)
    stage.upgraded(BATCH, OLD, "vLLM 0.30.1 for the batch pool.")
    good = office.combinations(by, stage.set_of(by, BATCH), state="verified")[0]
    office.act(by, f"{API}/combinations/{good['id']}", "pin")
    stage.upgraded(BATCH, NEW, "vLLM 0.33.0 for the batch pool.")
    revision = stage.set_of(by, BATCH)["revisions"][0]
    match = {"set": BATCH.name, "role": "prefill", "revision": revision}
    # Not overwritten: decode computes anew what it could not read. Slow and visible, no wrong tokens.
    _engines(stage, BATCH, match, {"short_lease": {"seconds": 0.0, "overwritten": False}})
    series = probed(office, by, BATCH, revision)
    return (
        f"{BATCH.address}: degraded since its last upgrade ({_first_red(series)}); combination {good['number']} is "
        "verified and pinned: it can be restored."
    )


def aborted_once(stage: Stage) -> str:
    """An upgrade that somebody sent back at its first hold, and one that came to its end."""
    office = stage.office
    by = office.program("jonas.w")
    workload = stage.set_of(by, CHAT_US)["id"]
    number = office.upgrade(by, workload, "Try 0.33.0 before the weekend.", images(NEW))
    office.reached(by, number, "waiting")
    office.verb(by, number, "abort", "Not before the weekend: nobody is on call.")
    office.reached(by, number, "aborted")
    stage.upgraded(CHAT_US, NEW, "vLLM 0.33.0, on Monday.")
    return f"{CHAT_US.address}: upgrade {number} was aborted at its first hold, the next one succeeded."


def rolls_slowly(stage: Stage) -> str:
    """An upgrade whose groups have to be stable for long: it works, and nobody has to do anything."""
    office = stage.office
    by = office.program("jonas.w")
    workload = stage.set_of(by, CODE_US)["id"]
    number = office.upgrade(
        by, workload, "Slowly: each group for an hour.", images(NEW), stable_for=3600, stuck_after=7200
    )
    office.until(
        "the first new groups",
        lambda: len(office.workload(by, CODE_US.cluster, CODE_US.namespace, CODE_US.name)["revisions"]) == 2,
    )
    return (
        f"{CODE_US.address}: upgrade {number} rolls slowly, an hour for each row; nobody has to do anything."
    )


def verified(stage: Stage) -> str:
    """A good upgrade, and its combination pinned."""
    office = stage.office
    by = office.program(OPERATOR)
    stage.upgraded(TOOLS, NEW, "vLLM 0.33.0 for the tools model.")
    good = office.combinations(by, stage.set_of(by, TOOLS), state="verified")[0]
    office.act(by, f"{API}/combinations/{good['id']}", "pin")
    return f"{TOOLS.address}: upgraded and verified; combination {good['number']} is pinned."


def stale_cluster(stage: Stage) -> str:
    """What was seen of a cluster is kept when its API refuses to answer."""
    office = stage.office
    by = office.program(OPERATOR)
    path = f"{API}/workloads/{stage.set_of(by, EVAL)['id']}/capture"
    run = by.post(path, {"reason": "Before the maintenance of lab-eu1."})["id"]
    office.until("a captured candidate", lambda: by.get(f"{API}/runs/{run}")["state"] == "done", limit_s=60)
    client = Api(Path(stage.worlds[LAB].kubeconfigs["admin"]))
    client.request("POST", "/emulator/faults", {"do": "status", "code": 503, "users": ["lockstep"]})
    client.request("POST", "/emulator/watches/drop", {"users": ["lockstep"]})

    def stale() -> bool:
        return any(each["stale"] for each in by.list(f"{API}/clusters", name=LAB))

    office.until(f"{LAB} is stale", stale, limit_s=120)
    return f"{LAB}: its API answers Lockstep with 503; what was seen last is shown as stale."


# Long ones first.
CHAPTERS = (
    Chapter("verified", verified),
    Chapter("waits for approval", waits_for_approval),
    Chapter("short lease", short_lease),
    Chapter("stands at a hold", stands_at_a_hold),
    Chapter("red gate", red_gate),
    Chapter("aborted once", aborted_once),
    Chapter("stale cluster", stale_cluster),
    Chapter("rolls slowly", rolls_slowly),
)


def probed(office: Office, by: Client, pool: ServedPool, revision: str) -> Json:
    """A series of probes of a revision, judged."""
    rows = by.list(f"{API}/pools", cluster__name=pool.cluster, namespace=pool.namespace)
    row = next(each for each in rows if each["name"] == pool.name)
    asked = by.post(f"{API}/pools/{row['id']}/probe", {"kind": "probe", "revision": revision})
    path = f"{API}/probe-series/{asked['id']}"
    office.until("judged probes", lambda: by.get(path)["state"] not in ("waiting", "running"), limit_s=120)
    return by.get(path)


def _first_red(series: Json) -> str:
    findings = (series.get("verdict") or {}).get("findings") or []
    red = [each["sentence"] for each in findings if each["effect"] == "red"]
    if not red:
        raise Unexpected(f"Probe series {series['id']} is {series['state']} without a red finding.")
    return str(red[0]).rstrip(".")


def _engines(stage: Stage, pool: ServedPool, match: Json, fault: Json) -> None:
    url = f"{stage.worlds[pool.cluster].engines_url}/faults"
    answer = urllib3.request("POST", url, json={"match": match, "fault": fault}, timeout=10.0, retries=False)
    if answer.status >= 400:
        raise Unexpected(
            f"The engines of {pool.cluster} refused a fault: {answer.data.decode(errors='replace')}"
        )
