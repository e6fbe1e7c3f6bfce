"""What people do in the demo, over the REST API like any script: draft, ask, vote, start, promote, restore."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.demo.client import ApiProblem, Client

Json = dict[str, Any]

API = "/api/v1"
FINISHED = ("succeeded", "aborted", "superseded", "rolled-back", "failed")
_LOOK_S = 1.0
_PATIENCE_S = 420.0
# Gates of a pool with a few requests a second: the shipped ones ask for up to a thousand samples in ten minutes. Times
# only inform: here they hold what else this machine does.
_A_MINUTE = {"minimum_samples": 5, "window_s": 60}
SMALL_TRAFFIC: Json = {
    "error-ratio": _A_MINUTE,
    "failed-transfers": _A_MINUTE,
    "expired-leases": _A_MINUTE,
    "disaggregated-share": {**_A_MINUTE, "threshold": 0.5},
    "decode-only-share": {**_A_MINUTE, "threshold": 3},
    "ttft": {**_A_MINUTE, "required": False},
    "kv-usage": {"minimum_samples": 3, "window_s": 60},
    "queue": {"minimum_samples": 3, "window_s": 60},
    "restarts": {"window_s": 60},
}
TIMES_TOO: Json = {**SMALL_TRAFFIC, "ttft": {**_A_MINUTE, "threshold": 3}}


class Unexpected(RuntimeError):
    """Something came out that nobody planned; the text says what, in a sentence."""


@dataclass(frozen=True)
class Person:
    """One of the demo people. Password and token are made anew at every start; no token: they only sign in."""

    name: str
    password: str
    token: str
    does: str = ""
    roles: tuple[str, ...] = ()


@dataclass
class Office:
    """The people of a demo at work. Everything waits with a limit and raises Unexpected for another outcome."""

    address: str
    people: Mapping[str, Person]
    voters: tuple[str, ...]
    gone: Callable[[], bool] = lambda: False
    _clients: dict[str, Client] = field(default_factory=dict)

    def program(self, name: str) -> Client:
        """A client with the person's token."""
        return Client(self.address, token=self.people[name].token)

    def signed_in(self, name: str) -> Client:
        """A client of the person, signed in just now."""
        client = Client(self.address)
        client.sign_in(name, self.people[name].password)
        return client

    # --- looking

    def until(self, what: str, look: Callable[[], Any], *, limit_s: float = _PATIENCE_S) -> Any:
        """The first true thing that `look` gives."""
        end = time.monotonic() + limit_s
        while True:
            if found := look():
                return found
            if self.gone():
                raise Unexpected("The demo is ending.")
            if time.monotonic() > end:
                raise Unexpected(f"Not within {limit_s:.0f} s: {what}.")
            time.sleep(_LOOK_S)

    def workload(self, by: Client, cluster: str, namespace: str, name: str) -> Json:
        """A set as it was last observed."""
        found = by.list(f"{API}/workloads", cluster__name=cluster, namespace=namespace, name=name)
        return found[0]

    def operation(self, by: Client, number: int) -> Json:
        """One operation."""
        return by.get(f"{API}/operations/{number}")

    # --- a plan

    def draft(self, by: Client, workload: int, reason: str, roles: Json, **options: Any) -> int:
        """A plan that a worker has checked and nothing blocks; warnings are acknowledged. Its number."""
        body = {
            "workload": workload,
            "reason": reason,
            "draft": {"roles": roles},
            "options": {"gates": SMALL_TRAFFIC, **options},
        }
        plan = int(by.post(f"{API}/plans", body)["id"])
        self.checked(by, plan)
        return plan

    def checked(self, by: Client, plan: int) -> Json:
        """Wait for the check, then acknowledge the warnings."""
        path = f"{API}/plans/{plan}"

        def over() -> Json | None:
            shown = by.get(path)
            return shown if shown["state"] != "checking" else None

        shown: Json = self.until(f"plan {plan} is checked", over, limit_s=90)
        if shown["state"] != "ready" or shown["blocking"]:
            why = [each["sentence"] for each in shown["hazards"] if each["severity"] == "block"]
            raise Unexpected(f"Plan {plan} is {shown['state']}: {shown['problem'] or why}")
        for hazard in [each["id"] for each in shown["hazards"] if each["severity"] == "warn"]:
            self.act(by, path, "acknowledge", {"hazard": hazard})
        return shown

    def ask(self, by: Client, plan: int) -> int:
        """Ask for approval; the number of the change request."""
        return int(self.act(by, f"{API}/plans/{plan}", "request")["change_request"])

    def vote(self, request: int, voters: Iterable[str], comment: str = "") -> Json:
        """Let people approve, one after the other, until it is decided; the request afterwards."""
        path = f"{API}/change-requests/{request}"
        shown: Json = {}
        for name in voters:
            person = self.signed_in(name)
            shown = person.get(path)
            if shown["state"] != "open":
                break
            person.post(f"{path}/votes", {"choice": "approve", "digest": shown["digest"], "comment": comment})
            shown = person.get(path)
        return shown

    def start(self, by: Client, plan: int) -> int:
        """Start an approved plan; the number of the operation."""
        return int(self.act(by, f"{API}/plans/{plan}", "start")["operation"])

    def upgrade(self, by: Client, workload: int, reason: str, roles: Json, **options: Any) -> int:
        """From draft to a running operation."""
        plan = self.draft(by, workload, reason, roles, **options)
        request = self.ask(by, plan)
        if self.vote(request, self.voters, "Read.")["state"] != "approved":
            raise Unexpected(f"Change request {request} was not approved.")
        return self.start(by, plan)

    # --- an operation

    def reached(
        self, by: Client, number: int, *states: str, holds: int = 0, limit_s: float = _PATIENCE_S
    ) -> Json:
        """Wait for one of the states, agreeing at so many holds on the way; the operation. `waiting` is the first hold
        behind those."""
        agreed: set[str] = set()  # by hold: one hold may ask more than once

        def look() -> Json | None:
            shown = self.operation(by, number)
            if shown["state"] == "waiting":
                for request in self.open_holds(by, number):
                    if request["step"] in agreed or len(agreed) < holds:
                        self.vote(request["id"], self.voters, "All gates are green.")
                        agreed.add(request["step"])
                    elif "waiting" in states:
                        return shown
                return None
            if shown["state"] in states:
                return shown
            if shown["state"] in (*FINISHED, "held"):
                raise Unexpected(told(shown))
            return None

        shown: Json = self.until(f"operation {number} is {' or '.join(states)}", look, limit_s=limit_s)
        return shown

    def open_holds(self, by: Client, number: int) -> list[Json]:
        """Open requests for a step approval of an operation; `step` names the hold."""
        return by.list(
            f"{API}/change-requests", subject_kind="operations.hold", subject_id=number, state="open"
        )

    def verb(self, by: Client, number: int, verb: str, reason: str) -> None:
        """A verb on an operation."""
        self.act(by, f"{API}/operations/{number}", verb, {"reason": reason})

    # --- combinations

    def combinations(self, by: Client, workload: Json, **query: str) -> list[Json]:
        """Those of a set, newest first."""
        named = {"cluster__name": workload["cluster"], "namespace": workload["namespace"]}
        return by.list(f"{API}/combinations", **named, name=workload["name"], **query)

    def restore(self, who: str, combination: int, reason: str) -> int:
        """Start a restore, signed in; the number of its operation."""
        person = self.signed_in(who)
        path = f"{API}/combinations/{combination}"
        confirm = person.get(path)["name"]
        sent = {"reason": reason, "confirm": confirm}
        return int(self.act(person, path, "restore", sent)["operation"])

    def act(self, by: Client, path: str, verb: str, body: Json | None = None) -> Json:
        """A named action on a document as it stands now; asked again where somebody else was faster."""
        for attempt in range(5):
            by.get(path)
            try:
                return by.post(f"{path}/{verb}", body or {}, if_match=by.etag)
            except ApiProblem as problem:
                if problem.status != 412 or attempt == 4:
                    raise
        raise AssertionError


def told(operation: Json) -> str:
    """An operation that went elsewhere, in a sentence."""
    finding = operation.get("finding") or {}
    why = f": {finding['sentence']}" if finding.get("sentence") else ""
    return f"Operation {operation['id']} ({operation['title']}) is {operation['state']}{why}"


def images(image: str, *, env: Json | None = None) -> Json:
    """The roles of a draft: one image on both sides, with variables."""
    changes: Json = {"image": image, **({"env": env} if env else {})}
    return {"prefill": changes, "decode": changes}
