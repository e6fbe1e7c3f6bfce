"""Lockstep on the rig without processes: the real API, engine and steps, driven by the test itself."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from rest_framework.test import APIClient

from controlplane.fleet.connections import connect_cluster
from controlplane.fleet.models import Cluster, Workload
from controlplane.operations.clock import Clock, database_now
from controlplane.operations.engine import advance
from controlplane.operations.installation import OWN_RUNS, check_unknown_clusters
from controlplane.operations.models import FINISHED, Operation, Run
from controlplane.operations.runs import carry_out_run
from deploy.rig import Rig, workloads
from tests.conftest import Cast, make_cast
from workers.steps import RUNS, STEPS

MANIFESTS = Path(__file__).resolve().parents[2] / "deploy" / "target"
_keys = itertools.count(1)
Json = dict[str, Any]


def install_target(rig: Rig) -> None:
    """What deploy/target brings to a managed cluster."""
    for name in ("namespace.yaml", "rbac.yaml", "rollout-hold.yaml", "hold-guard.yaml"):
        rig.apply(list(yaml.safe_load_all((MANIFESTS / name).read_text())))


class Lockstep:
    """One installation beside one rig: people, their clients, and the hand that turns the crank."""

    def __init__(self, rig: Rig, *, environment: str = "staging") -> None:
        settings.LOCKSTEP_KUBECONFIG = str(rig.kubeconfig("lockstep"))
        settings.LOCKSTEP_STABLE_FOR = 0.5
        self.rig, self.people = rig, make_cast()
        now = database_now()
        self.cluster = Cluster.objects.create(
            name="rig",
            context="rig",
            environment=environment,
            lws_version="0.9.0",
            created_at=now,
            updated_at=now,
        )
        self.own_the_cluster()

    def own_the_cluster(self) -> None:
        """Claim the installation Lease; a Lease left by an earlier test's database is taken away first."""
        client = self.rig.client("break-glass")
        lease = "/apis/coordination.k8s.io/v1/namespaces/lockstep/leases/lockstep-installation"
        try:
            client.delete(lease)
        except Exception as error:  # not there yet
            assert "404" in str(error), error
        check_unknown_clusters()
        self.turn()
        self.cluster.refresh_from_db()
        assert self.cluster.writes == "ours", self.cluster.writes_reason

    # --- people

    def api(self, user: Any) -> APIClient:
        """A person's client, signed in just now."""
        client = APIClient()
        client.default_format = "json"
        client.force_login(user)
        session = client.session
        session["signed_in_at"] = datetime.now(UTC).isoformat()
        session.save()
        return client

    @property
    def operator(self) -> APIClient:
        """The operator's client."""
        return self.api(self.people.operator)

    def post(
        self, client: APIClient, path: str, body: Json | None = None, *, version: int | None = None
    ) -> Any:
        """A POST with a fresh Idempotency-Key, and If-Match where a version is given."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        if version is not None:
            headers["If-Match"] = f'"{version}"'
        return client.post(f"/api/v1/{path}", body or {}, headers=headers)

    # --- turning the crank

    def turn(self) -> int:
        """Do every due operation step and run once; how many were done."""
        done = 0
        for run in Run.objects.filter(state="waiting", not_before__lte=Clock()).order_by("id"):
            carry_out_run(run_id=run.pk, runs={**OWN_RUNS, **RUNS}, connect=connect_cluster, owner="test")
            done += 1
        due = Operation.objects.filter(state__in=["working", "waiting"], not_before__lte=Clock())
        for operation in due.order_by("id"):
            advance(operation_id=operation.pk, steps=STEPS, connect=connect_cluster, owner="test")
            done += 1
        return done

    def until(self, what: str, look: Callable[[], Any], *, limit_s: float = 40) -> Any:
        """Turn the crank until `look` gives something; AssertionError with the operations' states otherwise."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if found := look():
                return found
            if not self.turn():
                time.sleep(0.05)
        raise AssertionError(f"not within {limit_s} s: {what}\n{self.story()}")

    def story(self) -> str:
        """Where every operation stands, for a failing test's message."""
        lines = []
        for operation in Operation.objects.order_by("id"):
            steps = [f"{s.index}:{s.name.split('.')[1]}:{s.state}" for s in operation.steps.order_by("index")]
            lines.append(
                f"{operation} {operation.state}/{operation.phase} waits={operation.waits_for} "
                f"finding={operation.finding}\n  {' '.join(steps)}"
            )
        return "\n".join(lines)

    # --- sets and upgrades

    def observe(self, namespace: str, name: str) -> Workload:
        """The row that the watch would write."""
        live = self.rig.client().get(workloads.set_path(namespace, name))
        row, _ = Workload.objects.get_or_create(
            cluster=self.cluster,
            uid=live["metadata"]["uid"],
            defaults={
                "namespace": namespace,
                "name": name,
                "state": "settled",
                "observed_at": database_now(),
                "observed_fence": 1,
            },
        )
        return row

    def draft(self, workload: Workload, draft: Json, **options: Any) -> Json:
        """A checked plan, whatever the check said."""
        made = self.post(
            self.operator,
            "plans",
            {"workload": workload.pk, "reason": "test", "draft": draft, "options": options},
        )
        assert made.status_code == 201, made.json()
        return self.checked(made.json()["id"])

    def checked(self, plan_id: int) -> Json:
        """The plan once its check is over."""
        plan: Json = self.until("plan checked", lambda: self._if_checked(plan_id))
        return plan

    def _if_checked(self, plan_id: int) -> Json | None:
        plan: Json = self.operator.get(f"/api/v1/plans/{plan_id}").json()
        return None if plan["state"] == "checking" else plan

    def acknowledge(self, plan: Json) -> Json:
        """Every warning acknowledged by the requester."""
        for hazard in plan["hazards"]:
            if hazard["severity"] == "warn":
                said = self.post(
                    self.operator,
                    f"plans/{plan['id']}/acknowledge",
                    {"hazard": hazard["id"]},
                    version=plan["version"],
                )
                assert said.status_code == 200, said.json()
                plan = said.json()
        return plan

    def request(self, plan: Json) -> int:
        """A change request for the plan."""
        plan = self.acknowledge(plan)
        asked = self.post(self.operator, f"plans/{plan['id']}/request", version=plan["version"])
        assert asked.status_code == 201, asked.json()
        return int(asked.json()["change_request"])

    def vote(self, request_id: int, voter: Any, choice: str = "approve", comment: str = "") -> Any:
        """One vote on what the voter sees now."""
        client = self.api(voter)
        seen = client.get(f"/api/v1/change-requests/{request_id}").json()
        return self.post(
            client,
            f"change-requests/{request_id}/votes",
            {"choice": choice, "comment": comment, "digest": seen["digest"]},
        )

    def start(self, plan: Json) -> Operation:
        """Request, approve with as many votes as it takes, start."""
        request_id = self.request(plan)
        self.approve(request_id)
        now = self.operator.get(f"/api/v1/plans/{plan['id']}").json()
        started = self.post(self.operator, f"plans/{plan['id']}/start", version=now["version"])
        assert started.status_code == 201, started.json()
        return Operation.objects.get(pk=started.json()["operation"])

    def approve(self, request_id: int) -> None:
        """Votes of both approvers, until it is approved."""
        for voter in (self.people.approver, self.people.second_approver):
            seen = self.operator.get(f"/api/v1/change-requests/{request_id}").json()
            if seen["state"] == "approved":
                return
            said = self.vote(request_id, voter)
            assert said.status_code in (200, 201), said.json()

    def upgrade(self, namespace: str, name: str, *, image: str, **options: Any) -> Operation:
        """A started upgrade of both roles to an image."""
        workload = self.observe(namespace, name)
        plan = self.draft(
            workload, {"roles": {r: {"image": image} for r in ("prefill", "decode")}}, **options
        )
        assert plan["state"] == "ready", plan
        return self.start(plan)

    def verb(self, operation: Operation, verb: str, body: Json | None = None) -> Any:
        """A named action on the operation at its present version."""
        operation.refresh_from_db()
        return self.post(
            self.operator, f"operations/{operation.pk}/{verb}", body or {}, version=operation.version
        )

    def state(self, operation: Operation) -> Operation:
        """The row, read again."""
        operation.refresh_from_db()
        return operation

    def reached(self, operation: Operation, *states: str, limit_s: float = 60) -> Operation:
        """Turn until the operation is in one of the states."""
        self.until(f"{operation} in {states}", lambda: self.state(operation).state in states, limit_s=limit_s)
        return operation

    def finished(self, operation: Operation, *, approve: bool = True, limit_s: float = 90) -> str:
        """Turn until it has ended, approving (or promoting) at every hold; its outcome."""

        def look() -> str | None:
            now = self.state(operation)
            if approve and now.state == "waiting":
                self.let_go(now)
            return str(now.state) if now.state in FINISHED else None

        return str(self.until(f"{operation} finished", look, limit_s=limit_s))

    def let_go(self, operation: Operation) -> None:
        """Whatever the hold waits for: its step approval, or a promote."""
        waits = operation.waits_for
        if waits.get("hold_key"):
            # As the watch does every second: on a loaded machine the last look may be half a minute ago.
            Cluster.objects.filter(pk=self.cluster.pk).update(observed_at=database_now())
            said = self.verb(operation, "promote", {"hold_key": waits["hold_key"]})
            assert said.status_code in (200, 202), said.json()
        elif waits.get("what", "").startswith("approval "):
            self.approve(int(waits["what"].split()[1]))

    def counts(self, namespace: str, name: str) -> dict[tuple[str, str], int]:
        """(revision, role) → groups wanted, from the rig and not from Lockstep."""
        found = {}
        for child in workloads.lws_of(self.rig.client(), namespace, name):
            labels = child["metadata"]["labels"]
            found[labels[workloads.REVISION_LABEL], labels[workloads.ROLE_LABEL]] = child["spec"]["replicas"]
        return found


@contextmanager
def lockstep_on(rig: Rig, **options: Any) -> Iterator[Lockstep]:
    """An installation for one test; whatever still holds in the cluster is released by break-glass afterwards."""
    kept = settings.LOCKSTEP_KUBECONFIG, settings.LOCKSTEP_STABLE_FOR
    try:
        yield Lockstep(rig, **options)
    finally:
        settings.LOCKSTEP_KUBECONFIG, settings.LOCKSTEP_STABLE_FOR = kept
        release_all(rig)


def release_all(rig: Rig) -> None:
    """Delete every hold parameter as break-glass."""
    client = rig.client("break-glass")
    for each in client.items("/api/v1/namespaces/lockstep/configmaps"):
        if each["metadata"]["name"].startswith("hold-"):
            client.delete(f"/api/v1/namespaces/lockstep/configmaps/{each['metadata']['name']}")


__all__ = ["Cast", "Lockstep", "install_target", "lockstep_on", "release_all"]
