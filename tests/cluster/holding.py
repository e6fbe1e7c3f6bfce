"""A hold parameter written by hand, as Lockstep's account would, and questions to the API server under it."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from deploy.rig import Api, ApiError, Rig, until
from deploy.rig.api import MERGE

PARAMETERS = "/api/v1/namespaces/lockstep/configmaps"
HOLD = "lockstep.dev/hold"
PREFIX = "disaggregatedset.x-k8s.io/"
STRANGER, NEW = "0000cafe", "0badcafe"
Json = dict[str, Any]
fences = itertools.count(1000)


def lws_path(namespace: str, name: str, sub: str = "") -> str:
    return f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{namespace}/leaderworkersets/{name}{sub}"


def dry(client: Api, method: str, path: str, body: Json) -> Json:
    """A server dry run: admission is asked, nothing is stored."""
    kind = MERGE if method == "PATCH" else "application/json"
    return client.request(method, path, body, content_type=kind, query={"dryRun": "All"})


def refused(call: Callable[[], object], *, status: int = 403) -> str:
    """The message of a refusal."""
    with pytest.raises(ApiError) as found:
        call()
    assert found.value.status == status, found.value
    return found.value.message


@dataclass
class Held:
    """A set under a parameter that the tests write by hand, as Lockstep's account."""

    rig: Rig
    namespace: str
    name: str = "model"
    label: str = ""
    children: dict[str, Json] = field(default_factory=dict)

    @property
    def parameter(self) -> str:
        return f"hold-{self.namespace}.{self.name}"

    @property
    def path(self) -> str:
        return f"{PARAMETERS}/{self.parameter}"

    def client(self, who: str = "stranger") -> Api:
        return self.rig.client(who)

    def box(self, old: str = "4..4 2..2", new: str = "", slice_name: str = "0") -> dict[str, str]:
        """`4..4 2..2` is the floor and ceiling of prefill and of decode."""
        data = {}
        for label, text in ((self.label, old), (NEW, new)):
            for role, bounds in zip(("prefill", "decode"), text.split(), strict=False):
                floor, ceiling = bounds.split("..")
                data[f"floor.{slice_name}.{label}.{role}"] = floor
                data[f"ceil.{slice_name}.{label}.{role}"] = ceiling
        return data

    def write(self, data: dict[str, str], *, label: str = "true", fence: int | None = None) -> Json:
        """Write the parameter whole, as Lockstep, under a rising number."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.parameter, "namespace": "lockstep", "labels": {HOLD: label}},
            "data": {
                "namespace": self.namespace,
                "set": self.name,
                "operation": "U-7",
                "fence": str(next(fences) if fence is None else fence),
                **data,
            },
        }
        client = self.client("lockstep")
        try:
            client.get(self.path)
        except ApiError as error:
            assert error.status == 404
            return client.create(body)
        return client.replace(body)

    def stands(self, data: dict[str, str] | None = None) -> None:
        """Write a box and wait until the API server enforces it: a marker revision's ceiling tells which one."""
        marker = str(next(fences))
        self.write({**(self.box() if data is None else data), f"ceil.0.{STRANGER}.marker": marker})
        until("the box to be enforced", lambda: f"allowed 0..{marker}" in self._answer(marker), limit_s=15)

    def _answer(self, marker: str) -> str:
        try:
            self.make(role="marker", revision=STRANGER, replicas=int(marker) + 1)
        except ApiError as error:
            return error.message
        return ""

    def scaled(self, role: str, replicas: int, who: str = "stranger") -> Json:
        """Dry run: another number of groups for a child of the live revision."""
        path = lws_path(self.namespace, f"{self.name}-{self.label}-{role}")
        return dry(self.client(who), "PATCH", path, {"spec": {"replicas": replicas}})

    def make(
        self,
        *,
        role: str,
        revision: str,
        replicas: int,
        who: str = "stranger",
        namespace: str = "",
        **labels: str,
    ) -> Json:
        """Dry run: a new child."""
        body = copy.deepcopy(self.children["prefill"])
        body.pop("status", None)
        place = namespace or self.namespace
        name = f"{self.name}-{revision}-{role}"
        wears = {
            **body["metadata"]["labels"],
            PREFIX + "role": role,
            PREFIX + "revision": revision,
            **{PREFIX + key: value for key, value in labels.items()},
        }
        body["metadata"] = {"name": name, "namespace": place, "labels": wears}
        body["spec"]["replicas"] = replicas
        return dry(self.client(who), "POST", lws_path(place, "").rstrip("/"), body)


def message(call: Callable[[], object]) -> str:
    """What the API server says against it, or nothing."""
    try:
        call()
    except ApiError as error:
        return error.message
    return ""
