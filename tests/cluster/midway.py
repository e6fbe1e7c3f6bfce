"""An upgrade brought to a known place in the middle, so that a test can interfere there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from controlplane.holds import leftover, proof
from controlplane.operations.engine import wake
from controlplane.operations.models import FINISHED, Operation
from controlplane.upgrades.steps import back, hold, rows
from deploy.rig import Api, workloads
from tests.cluster.driving import Lockstep

V1, V2, V3 = (f"registry.example/engine:v{number}" for number in (1, 2, 3))
PARAMETERS = "/api/v1/namespaces/lockstep/configmaps"
HOLD = "lockstep.dev/hold"
Json = dict[str, Any]
SETTLED = proof.GUARDS_SETTLED
Counts = dict[tuple[str, str], int]


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """No watch rings in these tests: let the steps look again at once instead of after seconds."""
    monkeypatch.setattr(rows, "LOOK_EVERY", 0.3)
    monkeypatch.setattr(hold, "LOOK_EVERY", 0.3)
    monkeypatch.setattr(back, "RETRY_EVERY", 0.5)
    monkeypatch.setattr(leftover, "LEAK_AFTER", 1.0)
    monkeypatch.setattr(rows, "TOUCHES", 4)
    monkeypatch.setattr(proof, "PROOF_PATIENCE", 5.0)
    monkeypatch.setattr(proof, "GUARDS_SETTLED", 0.0)


def let_policies_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that change the policies: the time that they must have stood unchanged, as shipped."""
    monkeypatch.setattr(proof, "GUARDS_SETTLED", SETTLED)


@dataclass
class Midway:
    """A started upgrade of a set of 2 prefill and 1 decode groups, and what a test needs to interfere."""

    lockstep: Lockstep
    namespace: str
    operation: Operation
    old: str

    @property
    def new(self) -> str:
        """The new revision's label."""
        return str(self.lockstep.state(self.operation).memory["new"])

    @property
    def set_path(self) -> str:
        """Address of the set."""
        return workloads.set_path(self.namespace, "model")

    @property
    def parameter_path(self) -> str:
        """Address of its hold parameter."""
        return f"{PARAMETERS}/hold-{self.namespace}.model"

    def client(self, who: str = "stranger") -> Api:
        """Somebody's client of the API server."""
        return self.lockstep.rig.client(who)

    def live_roles(self) -> list[Json]:
        """`spec.roles` as they stand."""
        roles: list[Json] = self.client("admin").get(self.set_path)["spec"]["roles"]
        return roles

    def write_roles(self, roles: list[Json], who: str = "stranger") -> None:
        """Somebody writes the roles."""
        self.client(who).patch(self.set_path, {"spec": {"roles": roles}})

    def with_image(self, image: str) -> list[Json]:
        """The live roles with another image."""
        roles = self.live_roles()
        for role in roles:
            pod = role["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
            pod["containers"][0]["image"] = image
        return roles

    def counts(self) -> Counts:
        """(revision, role) → groups wanted, empty sides left out."""
        found = self.lockstep.counts(self.namespace, "model")
        return {key: count for key, count in found.items() if count}

    def before(self) -> Counts:
        """The counts of the old revision alone."""
        return {(self.old, "prefill"): 2, (self.old, "decode"): 1}

    def first_row(self) -> Counts:
        """The counts at the first complete row."""
        return {**self.before(), (self.new, "prefill"): 1, (self.new, "decode"): 1}

    def look(self) -> None:
        """Ring, as the watch does when something moves, and turn the crank once."""
        wake(operation_id=self.operation.pk)
        self.lockstep.turn()

    def found(self, code: str, *, limit_s: float = 30) -> Json:
        """Turn until a finding holds the operation; the finding, which must be this one."""

        def held() -> Json | None:
            now = self.lockstep.state(self.operation)
            if now.state == "held":
                return dict(now.finding)
            wake(operation_id=now.pk)
            return None

        finding: Json = self.lockstep.until(f"held: {code}", held, limit_s=limit_s)
        assert finding["code"] == code, finding
        assert finding["sentence"] and finding["next_action"], finding
        return finding

    def verb(self, verb: str, **body: Any) -> Json:
        """A person's verb that is accepted."""
        said = self.lockstep.verb(self.operation, verb, body)
        assert said.status_code == 200, said.json()
        answer: Json = said.json()
        return answer

    def reached(self, *states: str, limit_s: float = 30) -> None:
        """Turn until the operation is in one of the states."""
        self._turn_until(f"in {states}", lambda now: now.state in states, limit_s)

    def ends(self, outcome: str, *, limit_s: float = 60) -> None:
        """Turn to the end, agreeing at every hold."""

        def over(now: Operation) -> bool:
            if now.state == "waiting":
                self.lockstep.let_go(now)
            return now.state in FINISHED

        self._turn_until(outcome, over, limit_s)
        assert self.lockstep.state(self.operation).state == outcome, self.lockstep.story()

    def _turn_until(self, what: str, over: Callable[[Operation], bool], limit_s: float) -> None:
        def look() -> bool:
            now = self.lockstep.state(self.operation)
            return over(now) or (wake(operation_id=now.pk) and False)

        self.lockstep.until(what, look, limit_s=limit_s)

    def goes_back(self) -> None:
        """Abort, and find everything as it was, with the parameter let go."""
        self.verb("abort", reason="test")
        self.ends("aborted")
        assert self.counts() == self.before(), self.counts()
        assert self.client("admin").get(self.parameter_path)["metadata"]["labels"][HOLD] == "released"
        assert workloads.wait_settled(self.client("admin"), self.namespace, "model") == self.old


def small_roles(image: str = V1) -> list[Json]:
    """2 prefill and 1 decode groups."""
    return [workloads.role("prefill", 2, image=image), workloads.role("decode", 1, image=image)]


def started(lockstep: Lockstep, namespace: str, make_set: Callable[..., str], **options: Any) -> Midway:
    """An approved upgrade that has been started and not been worked on."""
    old = make_set(roles=small_roles())
    operation = lockstep.upgrade(namespace, "model", image=V2, **options)
    return Midway(lockstep, namespace, operation, old)


def at_first_hold(lockstep: Lockstep, namespace: str, make_set: Callable[..., str], **options: Any) -> Midway:
    """An upgrade that stands at the first complete row, waiting for its approval."""
    midway = started(lockstep, namespace, make_set, **options)
    midway.reached("waiting")
    assert midway.counts() == midway.first_row()
    return midway
