"""The DisaggregatedSet controller: what a set's spec asks for, as LeaderWorkerSets of the right size.

Two versions of it: that of 0.9.0, and the newer one with slices, roles scaled from outside and a status. The order of
one reconcile is that of the real ones; what they get wrong stays wrong here (docs of the rollouts: a beginning that
broke off half-way is never repaired, a set whose roles are all renamed leaves the old ones behind).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from deploy.demo.emulator.controllers import scalers, set_status
from deploy.demo.emulator.controllers.children import (
    Child,
    children_of,
    create_child,
    generations,
    role_names,
)
from deploy.demo.emulator.controllers.executor import Slice, roll, settle
from deploy.demo.emulator.controllers.hands import Hands
from deploy.demo.emulator.controllers.names import (
    GROUP_SETS,
    ONLY_SLICE,
    SCALERS,
    SERVICES,
    SET_NAME,
    SET_SLICE,
    SETS,
    labels_of,
    owned_by,
    where,
)
from deploy.demo.emulator.controllers.private_services import reconcile_services
from deploy.demo.emulator.controllers.program import Controller, Key
from deploy.demo.emulator.controllers.revision import set_revision
from deploy.demo.emulator.controllers.settings import Settings
from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.requests import service_account

Doc = dict[str, Any]
MANAGER = service_account("lws-system", "lws-controller-manager")


class DisaggregatedSets(Controller):
    """One set at a time."""

    name = "disaggregatedset"
    user = MANAGER

    def __init__(self, settings: Settings) -> None:
        self._sliced = settings.slices
        self._requeue_s = settings.times.requeue_s
        self.watches = (SETS, GROUP_SETS, SCALERS) if settings.slices else (SETS, GROUP_SETS)

    def keys(self, kind: str, doc: Doc) -> Iterable[Key]:
        """A set, or the set that owns what has changed."""
        if kind == SETS:
            return [where(doc)]
        owner = owned_by(doc, "DisaggregatedSet")
        return [owner] if owner else []

    async def reconcile(self, key: Key, hands: Hands) -> float | None:
        """Bring one set a step forward."""
        owner = hands.find(SETS, *key)
        if owner is None:
            return None
        if not self._sliced:
            return await self._slice(hands, owner, ONLY_SLICE, scalers.targets(owner, {}))
        return await self._all_slices(hands, owner)

    async def _all_slices(self, hands: Hands, owner: Doc) -> float | None:
        count = owner["spec"].get("slices", 1)
        await self._drop_slices(hands, owner, count)
        sized_by = await scalers.reconcile_scalers(hands, owner, children_of(hands, owner))
        wanted = scalers.targets(owner, sized_by)
        if count > 1:
            await self._rename_adopted(hands, owner)
        problem: ApiProblem | None = None
        again: list[float] = []
        for number in range(count):
            try:
                later = await self._slice(hands, owner, str(number), wanted)
            except ApiProblem as refused:
                problem = refused
            else:
                again += [] if later is None else [later]
        children = children_of(hands, owner)
        revision = set_revision(owner["spec"]["roles"])
        await scalers.write_status(hands, owner, sized_by, children)
        await set_status.write(hands, owner, children, revision, wanted)
        if problem is not None:
            raise problem
        return min(again) if again else None

    async def _slice(self, hands: Hands, owner: Doc, key: str, wanted: dict[str, int]) -> float | None:
        roles = owner["spec"]["roles"]
        revision = set_revision(roles)
        await self._delete_drained(hands, owner, key, revision)
        found = self._found(hands, owner, key)
        new = found.pop(revision, {})
        state = Slice(
            owner=owner,
            key=key,
            revision=revision,
            roles=roles,
            targets=wanted,
            external=scalers.external_roles(owner) if self._sliced else frozenset(),
            old=found,
            new=new,
            sliced=self._sliced,
        )
        again = None
        if state.rolling:
            again = await roll(hands, state, self._requeue_s)
        else:
            await settle(hands, state)
        await reconcile_services(
            hands,
            owner,
            self._found(hands, owner, key),
            roles=role_names(roles),
            revision=revision,
            slice_key=key,
        )
        return again

    def _found(self, hands: Hands, owner: Doc, key: str) -> dict[str, dict[str, Child]]:
        return generations(child for child in children_of(hands, owner) if child.slice == key)

    async def _delete_drained(self, hands: Hands, owner: Doc, key: str, revision: str) -> None:
        for label, generation in self._found(hands, owner, key).items():
            if label == revision or any(child.replicas for child in generation.values()):
                continue
            for child in generation.values():
                await hands.delete(GROUP_SETS, *where(child.doc))
                await hands.event(owner, "LWSDeleted", f"{child.name} is drained and deleted")

    # --- slices

    async def _drop_slices(self, hands: Hands, owner: Doc, count: int) -> None:
        """What belongs to slices that the spec does not have any more goes at once, without a drain."""
        namespace, name = where(owner)
        for kind in (GROUP_SETS, SERVICES):
            for doc in hands.list(kind, namespace, labels=f"{SET_NAME}={name}"):
                number = labels_of(doc).get(SET_SLICE, ONLY_SLICE)
                if number.isdigit() and int(number) >= count:
                    await hands.delete(kind, namespace, doc["metadata"]["name"])

    async def _rename_adopted(self, hands: Hands, owner: Doc) -> None:
        """Children of an older manager at the target revision become ones that say their slice."""
        roles = {role["name"]: role for role in owner["spec"]["roles"]}
        revision = set_revision(owner["spec"]["roles"])
        for child in children_of(hands, owner):
            if child.sliced or child.revision != revision or child.role not in roles:
                continue
            await hands.delete(GROUP_SETS, *where(child.doc))
            await create_child(
                hands,
                owner,
                roles[child.role],
                slice_key=ONLY_SLICE,
                revision=revision,
                replicas=child.replicas,
                sliced=True,
            )
