"""The cluster of the chaos tests: two tables outside every transaction of the product.

`toy_world` carries the fence number of each target and refuses a write under a lower one, as the guard policy
does on a real cluster. `toy_effects` takes one row per side effect, with no constraint against doubles:
counting them is the test.
"""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any, Self

import psycopg

from controlplane.kube.errors import Denied
from controlplane.kube.resources import CONFIG_MAPS
from controlplane.operations.contract import Done, Finish, Hold, Outcome, StepContext, StepDef, Wait

TABLES = """
CREATE TABLE IF NOT EXISTS toy_world (target bigint PRIMARY KEY, fence bigint NOT NULL);
CREATE TABLE IF NOT EXISTS toy_effects (
    operation bigint, step bigint, attempt int, fence bigint, process int, at timestamptz DEFAULT
    clock_timestamp() ); CREATE TABLE IF NOT EXISTS toy_refused (operation bigint, step bigint, fence bigint,
    process int); TRUNCATE toy_world, toy_effects, toy_refused;
"""
STEPS_PER_OPERATION = ["toy.write", "toy.look", "toy.write", "toy.write", "toy.end"]


class World:
    """A client of the toy cluster, with the hook of a real one. Every call is its own transaction."""

    def __init__(self, on_call: Any = None) -> None:
        self.on_call = on_call
        self.unanswered = False
        self.link = psycopg.connect(os.environ["TOY_DATABASE"], autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self.link.close()

    def raise_fence(self, target: int, fence: int) -> bool:
        """Put our number on the target; False where a higher one stands."""
        statement = """
            INSERT INTO toy_world (target, fence) VALUES (%s, %s)
            ON CONFLICT (target) DO UPDATE SET fence = excluded.fence WHERE toy_world.fence <= excluded.fence
        """
        return self._call("patch", statement, [target, fence]) == 1

    def has_effect(self, context: StepContext) -> bool:
        """Whether the side effect of this step and attempt is there."""
        query = "SELECT 1 FROM toy_effects WHERE operation = %s AND step = %s AND attempt = %s"
        return self._call("get", query, [context.operation.id, context.step_id, context.attempt]) == 1

    def add_effect(self, context: StepContext) -> None:
        """The side effect, refused under a number below the one that stands."""
        statement = """
            INSERT INTO toy_effects (operation, step, attempt, fence, process)
            SELECT %(operation)s, %(step)s, %(attempt)s, %(fence)s, %(process)s
            FROM toy_world WHERE target = %(operation)s AND fence <= %(fence)s FOR SHARE
        """
        row = {
            "operation": context.operation.id,
            "step": context.step_id,
            "attempt": context.attempt,
            "fence": context.fence,
            "process": os.getpid(),
        }
        if self._call("create", statement, row) != 1:
            self.link.execute(
                "INSERT INTO toy_refused VALUES (%(operation)s, %(step)s, %(fence)s, %(process)s)", row
            )
            raise Denied("stale fence number: another claim took this operation over", status=403)

    def _call(self, verb: str, statement: str, values: Any) -> int:
        if self.on_call:
            self.on_call("before", verb, CONFIG_MAPS, "toy")
        count = self.link.execute(statement, values).rowcount
        if self.on_call:
            self.on_call("after", verb, CONFIG_MAPS, "toy")
        return count


def connect(cluster: Any, *, on_call: Any = None) -> Any:
    """A client, as fleet.connections.connect_cluster gives one."""
    return World(on_call)


def fence_world(context: StepContext) -> Hold | None:
    """Raise the number on the operation's target."""
    world: Any = context.kube
    if not world.raise_fence(context.operation.id, context.fence):
        return Hold("database-behind", "A higher number stands.", "Adopt.")
    return None


def write(context: StepContext) -> Outcome:
    """Look, then act: between the two a pause does the most harm."""
    world: Any = context.kube
    if not world.has_effect(context):
        time.sleep(float(os.environ.get("TOY_SLOWNESS", "0.02")))
        world.add_effect(context)
    return Done(result={"process": os.getpid()})


def look(context: StepContext) -> Outcome:
    """A look that has to be made twice."""
    world: Any = context.kube
    world.has_effect(context)
    if context.operation.memory.get("looked") or not int(os.environ.get("TOY_WAITS", "1")):
        return Done()
    return Wait(0.1, "the second look", remember={"looked": True})


def end(context: StepContext) -> Outcome:
    """The last step."""
    return Finish("aborted" if context.operation.phase == "aborting" else "succeeded")


STEPS = {
    "toy.write": StepDef(write, writes=True, fence_world=fence_world),
    "toy.look": StepDef(look, writes=False, fence_world=fence_world),
    "toy.end": StepDef(end, writes=False, fence_world=fence_world),
}
