"""The real DisaggregatedSet controller under a hold: it stops at every row, and no writer gets it past one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from deploy.rig import Rig, until, workloads
from tests.cluster.driving import install_target, release_all
from tests.cluster.holding import HOLD, PREFIX, Held, Json, fences, message

pytestmark = pytest.mark.rig


@dataclass
class Rolling:
    """A set of its own that the controller rolls as far as the parameter lets it."""

    held: Held
    old: str

    @property
    def path(self) -> str:
        return workloads.set_path(self.held.namespace, self.held.name)

    def roles(
        self, image: str, names: tuple[str, str] = ("prefill", "decode"), counts: tuple[int, int] = (4, 2)
    ) -> Json:
        entries = [workloads.role(n, c, image=image) for n, c in zip(names, counts, strict=True)]
        return {"spec": {"roles": entries}}

    def write_roles(self, body: Json, who: str = "stranger") -> None:
        self.held.client(who).patch(self.path, body)

    def touch(self) -> None:
        note = {"lockstep.dev/row": str(next(fences))}
        self.held.client("lockstep").patch(self.path, {"metadata": {"annotations": note}})

    def counts(self) -> dict[str, tuple[int, int]]:
        """label → (prefill, decode) groups wanted, revisions without groups left out."""
        found: dict[str, dict[str, int]] = {}
        for child in workloads.lws_of(self.held.rig.client(), self.held.namespace, self.held.name):
            labels = child["metadata"]["labels"]
            found.setdefault(labels[PREFIX + "revision"], {})[labels[PREFIX + "role"]] = child["spec"][
                "replicas"
            ]
        pairs = {label: (r.get("prefill", 0), r.get("decode", 0)) for label, r in found.items()}
        return {label: pair for label, pair in pairs.items() if pair != (0, 0)}

    def labels(self) -> set[str]:
        children = workloads.lws_of(self.held.rig.client(), self.held.namespace, self.held.name)
        return {child["metadata"]["labels"][PREFIX + "revision"] for child in children}

    def new_label(self, *known: str) -> str:
        """The label of the revision that the controller has made for every role."""

        def look() -> str:
            children = workloads.lws_of(self.held.rig.client(), self.held.namespace, self.held.name)
            made = [c["metadata"]["labels"][PREFIX + "revision"] for c in children]
            return next((label for label in made if label not in known and made.count(label) == 2), "")

        return until("a new revision at 0", look, limit_s=20)

    def refusal(self, text: str) -> None:
        """Wait until the controller has run into the hold with these words."""
        until(
            f"the controller to be refused: {text}", lambda: text in self.held.rig.log("lws", 400), limit_s=30
        )

    def reach(self, **wanted: tuple[int, int]) -> None:
        want = {label.removeprefix("r"): pair for label, pair in wanted.items()}
        until(f"counts {want}", lambda: self.counts() == want, limit_s=20)


@pytest.fixture
def rolling(rig: Rig, namespace: str, make_set: Callable[..., str]) -> Iterator[Rolling]:
    install_target(rig)
    old = make_set()
    held = Held(rig, namespace, label=old)
    for child in workloads.lws_of(rig.client(), namespace, "model"):
        held.children[child["metadata"]["labels"][PREFIX + "role"]] = child
    yield Rolling(held, old)
    release_all(rig)


def test_the_controller_stops_at_every_row_and_goes_back_by_hand(rolling: Rolling) -> None:
    held, old = rolling.held, rolling.old
    before = held.client().get(rolling.path)["spec"]["roles"]
    held.stands()
    rolling.write_roles(rolling.roles("registry.example/engine:v2"))
    new = rolling.new_label(old)
    rolling.refusal(f"model-{new}-prefill 0 -> 1, allowed 0..0")
    assert rolling.counts() == {old: (4, 2)}, "the new sets stand at 0 and nothing moves"

    ceilings = {f"ceil.0.{new}.prefill": "1", f"ceil.0.{new}.decode": "1"}
    held.write({**held.box(), **ceilings})
    rolling.touch()
    rolling.reach(**{f"r{old}": (4, 2), f"r{new}": (1, 1)})
    rolling.refusal(f"model-{old}-prefill 4 -> 3, allowed 4..4")
    services = held.client().items(f"/api/v1/namespaces/{held.namespace}/services")
    made = [s["metadata"]["name"] for s in services if s["metadata"]["name"].endswith("-prv")]
    assert not [name for name in made if new in name], "a refused controller makes no -prv Services"

    held.write({**held.box("3..4 2..2"), **ceilings, f"ceil.0.{new}.prefill": "2"})
    rolling.touch()
    rolling.reach(**{f"r{old}": (3, 2), f"r{new}": (2, 1)})

    # Somebody wants more while it is held: nothing grows.
    rolling.write_roles(rolling.roles("registry.example/engine:v2", counts=(8, 4)))
    rolling.touch()
    rolling.refusal("allowed 0..2")
    assert rolling.counts() == {old: (3, 2), new: (2, 1)}

    # The lines for a person at a shell, as the cluster admin, while the hold stands.
    rolling.write_roles({"spec": {"roles": before}})
    rolling.reach(**{f"r{old}": (4, 2)})
    assert held.client().get(held.path)["metadata"]["labels"][HOLD] == "true", "it still holds"


def test_a_third_template_gets_nothing_and_the_second_comes_back(rolling: Rolling) -> None:
    held, old = rolling.held, rolling.old
    held.stands()
    rolling.write_roles(rolling.roles("registry.example/engine:v2"))
    second = rolling.new_label(old)
    held.write({**held.box(), f"ceil.0.{second}.prefill": "1", f"ceil.0.{second}.decode": "1"})
    rolling.touch()
    rolling.reach(**{f"r{old}": (4, 2), f"r{second}": (1, 1)})
    rolling.write_roles(rolling.roles("registry.example/engine:v3"))
    third = rolling.new_label(old, second)
    rolling.reach(**{f"r{old}": (4, 2)})
    rolling.refusal(f"model-{third}-prefill 0 -> 1, allowed 0..0")
    assert rolling.counts() == {old: (4, 2)}, (
        "the third is at 0, the second drained as an old one, the first stays"
    )
    rolling.write_roles(rolling.roles("registry.example/engine:v2"))
    rolling.reach(**{f"r{old}": (4, 2), f"r{second}": (1, 1)})


def test_renamed_roles_cannot_be_created_at_full_size(rolling: Rolling) -> None:
    held, old = rolling.held, rolling.old
    before = held.client().get(rolling.path)["spec"]["roles"]
    held.stands()
    rolling.write_roles(rolling.roles("registry.example/engine:v2", names=("fill", "code")))
    rolling.refusal("-fill 0 -> 4, allowed 0..0")
    assert rolling.counts() == {old: (4, 2)}
    assert rolling.labels() == {old}, "nothing was created"
    rolling.write_roles({"spec": {"roles": before}})
    rolling.touch()
    until("the set is settled", lambda: workloads.settled(held.client(), held.namespace, "model"), limit_s=20)
    assert rolling.labels() == {old}


def test_a_dead_webhook_refuses_everything_and_proves_nothing(rolling: Rolling) -> None:
    held = rolling.held
    held.stands()
    held.rig.break_webhooks()
    try:
        said = until(
            "the webhook to be away",
            lambda: (
                m if "failed calling webhook" in (m := message(lambda: held.scaled("prefill", 1))) else ""
            ),
        )
        assert "lockstep hold" not in said
    finally:
        held.rig.mend_webhooks()
    until(
        "the hold to answer again", lambda: "lockstep hold U-7" in message(lambda: held.scaled("prefill", 1))
    )


def test_the_lines_in_a_real_parameter_are_those_that_work() -> None:
    from controlplane.holds.parameter import holding_parameter, released_parameter
    from policy.rollout.box import Box

    empty = released_parameter(namespace="serving", name="model", uid="u", fence=3)
    data = holding_parameter(
        empty, operation="U-7", installation="here", fence=4, box=Box(), old_roles=[{"name": "prefill"}]
    )["data"]
    assert json.loads(data["old-roles"]) == {"spec": {"roles": [{"name": "prefill"}]}}
    assert data["to-abort"].startswith("kubectl -n serving patch disaggregatedset model --type=merge -p ")
    assert "label configmap hold-serving.model lockstep.dev/hold=released --overwrite" in data["to-release"]
