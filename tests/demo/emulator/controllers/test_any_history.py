"""Whatever is written, fails and crashes: the set ends at the last template, and every step on the way is the
planner's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.demo.emulator.controllers.disaggregated import MANAGER
from deploy.demo.emulator.controllers.names import GROUP_SETS, INITIAL_REPLICAS, PODS, SETS
from deploy.demo.emulator.controllers.program import Program
from deploy.demo.emulator.controllers.revision import set_revision
from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.requests import Write
from deploy.rig.workloads import REVISION_LABEL, ROLE_LABEL
from policy.rollout.pace import resolve_pace
from policy.rollout.planner import next_row
from tests.demo.emulator.controllers.world import LIMIT_S, ROLES, SET, SPACE, World, images, world

Doc = dict[str, Any]
Sizes = dict[str, int]


class Referee:
    """Knows, for every number that the manager writes, whether the planner asked for it."""

    def __init__(self, made: World) -> None:
        self._made = made
        self._rest: Sizes = {}
        self.fouls: list[str] = []
        made.store.writes.checks.append(self.check)

    def check(self, write: Write) -> None:
        if write.kind.ref != GROUP_SETS or write.user != MANAGER or write.operation != "UPDATE":
            return
        assert write.object is not None and write.old is not None
        was, now = write.old["spec"]["replicas"], write.object["spec"]["replicas"]
        if write.subresource or was == now:
            return
        if self._rest.pop(write.name, None) == now:
            return  # the rest of a step that has begun
        self._rest = self._asked()
        if self._rest.pop(write.name, None) != now:
            self.fouls.append(f"{write.name} {was} -> {now}; {self._made.sizes()}; asked {self._rest}")

    def _asked(self) -> Sizes:
        """Every child that the next step changes, and to what."""
        stored = self._made.store.get(SETS, SPACE, SET)
        roles = stored["spec"]["roles"]
        label = set_revision(roles)
        target = [role["spec"]["replicas"] for role in roles]
        found: dict[str, dict[str, Doc]] = {}
        for child in self._made.children():
            labels = child["metadata"]["labels"]
            found.setdefault(labels[REVISION_LABEL], {})[labels[ROLE_LABEL]] = child
        new = found.pop(label, {})
        old = [sum(size(each.get(name)) for each in found.values()) for name in ROLES]
        if not any(old):
            return {
                new[name]["metadata"]["name"]: count
                for name, count in zip(ROLES, target, strict=True)
                if name in new
            }
        if any(name not in new or ready(new[name]) != size(new[name]) for name in ROLES):
            return {}
        paces = [
            resolve_pace(role["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"], count)
            for role, count in zip(roles, target, strict=True)
        ]
        row = next_row(
            initial=[sum(initial(each.get(name)) for each in found.values()) for name in ROLES],
            old=old,
            new=[size(new[name]) for name in ROLES],
            target=target,
            surge=[pace.surge for pace in paces],
            unavailable=[pace.unavailable for pace in paces],
        )
        if row is None:
            return {}
        asked = {new[name]["metadata"]["name"]: count for name, count in zip(ROLES, row.new, strict=True)}
        return asked | drained(found, [now - left for now, left in zip(old, row.old, strict=True)])


def drained(old: dict[str, dict[str, Doc]], budget: list[int]) -> Sizes:
    """The newest old revision first; one whose role reaches 0 goes whole, only that role's share counts."""
    asked: Sizes = {}

    def born(generation: dict[str, Doc]) -> str:
        return max(str(child["metadata"]["creationTimestamp"]) for child in generation.values())

    for generation in sorted(old.values(), key=born, reverse=True):
        if not any(each > 0 for each in budget):
            break
        take = {
            name: min(budget[at], size(generation[name]))
            for at, name in enumerate(ROLES)
            if name in generation
        }
        empty = {name for name, count in take.items() if count == size(generation[name])}
        for at, name in enumerate(ROLES):
            if name in take:
                asked[generation[name]["metadata"]["name"]] = (
                    0 if empty else size(generation[name]) - take[name]
                )
                # What is at 0 already is not written, so nothing of it is charged either.
                if size(generation[name]) and (not empty or name in empty):
                    budget[at] -= take[name]
    return asked


def size(child: Doc | None) -> int:
    return int(child["spec"]["replicas"]) if child else 0


def ready(child: Doc) -> int:
    return int((child.get("status") or {}).get("readyReplicas", 0))


def initial(child: Doc | None) -> int:
    if child is None:
        return 0
    return int((child["metadata"].get("annotations") or {}).get(INITIAL_REPLICAS, size(child)))


# --- what happens


@dataclass(frozen=True)
class Roles:
    tag: str
    prefill: int
    decode: int
    surge: int
    unavailable: int

    def documents(self) -> list[Doc]:
        pace = {"surge": self.surge, "unavailable": self.unavailable}
        return images(self.tag, self.prefill, self.decode, **pace)


@dataclass(frozen=True)
class Crash:
    program: str
    writes: int


@dataclass(frozen=True)
class Failure:
    pod: int
    how: str


@dataclass(frozen=True)
class Scaled:
    """Somebody with the right to it writes the number of one child by hand."""

    child: int
    replicas: int


@dataclass(frozen=True)
class Pass:
    changes: int


roles = st.builds(
    Roles,
    st.sampled_from(["v1", "v2", "v3", "v4-late-20ms"]),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 1),
)
crashes = st.builds(
    Crash, st.sampled_from(["lws", "lws", "controller_manager", "kubelets"]), st.integers(0, 6)
)
failures = st.builds(Failure, st.integers(0, 9), st.sampled_from(["gone", "restarted", "not ready"]))
hands = st.builds(Scaled, st.integers(0, 5), st.integers(0, 5))
passing = st.builds(Pass, st.integers(1, 60))
histories = st.lists(st.one_of(roles, crashes, failures, hands, passing), max_size=14)


async def happen(made: World, event: Any) -> None:
    if isinstance(event, Roles | Scaled):
        while not made.cluster.lws.alive:  # its webhooks are away
            await asyncio.sleep(0.005)
    if isinstance(event, Roles):
        made.write_roles(event.documents())
    elif isinstance(event, Scaled):
        if children := made.children():
            name = children[event.child % len(children)]["metadata"]["name"]
            made.admin.patch(GROUP_SETS, SPACE, name, {"spec": {"replicas": event.replicas}})
    elif isinstance(event, Crash):
        program: Program = getattr(made.cluster, event.program)
        program.crash(after_writes=event.writes, kind=GROUP_SETS if event.program == "lws" else "")
    elif isinstance(event, Pass):
        with made.store.subscribe() as changes:
            seen = 0
            while seen < event.changes and (found := await changes.next(0.05)):
                seen += len(found)
    else:
        fail(made, event)


def fail(made: World, event: Failure) -> None:
    pods = made.pods()
    if not pods:
        return
    pod = pods[event.pod % len(pods)]
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    if event.how == "gone":
        made.admin.delete(PODS, SPACE, name)
    elif status.get("containerStatuses"):
        entries = [dict(each) for each in status["containerStatuses"]]
        conditions = [dict(each) for each in status["conditions"]]
        if event.how == "restarted":
            entries[0]["restartCount"] += 1
        else:
            entries[0].update(ready=False, started=False)  # its kubelet makes it ready again
            for each in conditions:
                if each["type"] in ("Ready", "ContainersReady"):
                    each["status"] = "False"
        made.admin.write_status(PODS, SPACE, name, {"containerStatuses": entries, "conditions": conditions})


def cure(made: World) -> None:
    """What a person does for a beginning that was cut off: the controller never repairs it."""
    label = set_revision(made.store.get(SETS, SPACE, SET)["spec"]["roles"])
    sizes = made.sizes()
    there = [name for name in ROLES if (label, name) in sizes]
    others = any(count for (revision, _), count in sizes.items() if revision != label)
    if there and len(there) < len(ROLES) and others:
        for name in there:
            made.admin.delete(GROUP_SETS, SPACE, f"{SET}-{label}-{name}")


async def live(first: Roles, history: Sequence[Any]) -> None:
    async with world() as made:
        referee = Referee(made)
        made.make_set(first.documents())
        last = first
        for event in history:
            await happen(made, event)
            last = event if isinstance(event, Roles) else last
        loop = asyncio.get_running_loop()
        end = loop.time() + LIMIT_S
        while not made.settled():
            assert referee.fouls == []
            assert loop.time() < end, f"not settled: {made.sizes()} {made.states()}"
            with made.store.subscribe() as changes:
                if not await changes.next(0.3):
                    try:
                        cure(made)
                    except ApiProblem:
                        pass  # the manager has crashed: again in a moment
        assert made.settled() == set_revision(last.documents())
        assert referee.fouls == []


@settings(max_examples=25, deadline=None)
@given(roles, histories)
def test_any_history_ends_at_the_last_template(first: Roles, history: list[Any]) -> None:
    asyncio.run(live(first, history))
