"""An upgrade from draft to end over the API, written down once: printed as curl commands, or carried out.

python -m deploy.demo.walk FACTS            carries it out (FACTS: the file that the demo names)
python -m deploy.demo.walk FACTS --print    prints it as a shell script
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from deploy.demo.client import ApiProblem, Client

Json = dict[str, Any]

APPROVERS = ("ana", "ben")
_PATIENCE_S = 300.0

# What the shell needs besides curl. `pick` takes a path such as results.0.id or hazards.severity=warn.id.
PRELUDE = """\
A=$address/api/v1
TOKEN=$token   # $who, operator
pick() { python3 -c '
import json, sys
found = [json.load(sys.stdin)]
for key in sys.argv[1].split("."):
    if key.isdigit():
        found = [one[int(key)] for one in found]
        continue
    items = [each for one in found for each in (one if isinstance(one, list) else [one])]
    name, wanted, value = key.partition("=")
    found = [each for each in items if each[name] == value] if wanted else [each[name] for each in items]
print(*found, sep="\\n")' "$$1"; }
key() { python3 -c 'import uuid; print(uuid.uuid4())'; }
get() { curl -sS -H "Authorization: Bearer $$TOKEN" "$$A/$$1"; }
etag() { curl -sS -D - -o /dev/null -H "Authorization: Bearer $$TOKEN" "$$A/$$1" \\
  | tr -d '\\r' | sed -n 's/^[Ee][Tt]ag: //p'; }
post() { curl -sS --fail-with-body -H "Authorization: Bearer $$TOKEN" -H "Idempotency-Key: $$(key)" \\
  -H "Content-Type: application/json" -H "If-Match: $${3:+$$(etag "$$3")}" "$$A/$$1" -d "$$2"; }
# Tokens never vote: people sign in. Each approver in turn, until the request is decided.
approve() { while read -r name password; do
  if [ "$$(get "change-requests/$$1" | pick state)" = open ]; then
    jar=$$(mktemp)
    csrf=$$(curl -sS -c "$$jar" -H "Content-Type: application/json" "$$A/session" \\
      -d "{\\"username\\":\\"$$name\\",\\"password\\":\\"$$password\\"}" | pick csrf_token)
    curl -sS --fail-with-body -o /dev/null -b "$$jar" -H "X-CSRFToken: $$csrf" -H "Idempotency-Key: $$(key)" \\
      -H "Content-Type: application/json" "$$A/change-requests/$$1/votes" \\
      -d "{\\"choice\\":\\"approve\\",\\"digest\\":\\"$$(get "change-requests/$$1" | pick digest)\\"}"
    rm -f "$$jar"; fi; done <<PEOPLE
$approvers
PEOPLE
}"""


@dataclass(frozen=True)
class Get:
    """Read a document, and keep or show a part of it."""

    note: str
    path: str
    pick: str
    save: str = ""


@dataclass(frozen=True)
class Post:
    """A named action; `etag` is the document whose version must be the one seen."""

    note: str
    path: str
    body: Json = field(default_factory=dict)
    etag: str = ""
    pick: str = ""
    save: str = ""


@dataclass(frozen=True)
class ForEach:
    """The same action for every value that `pick` finds, as `$each`."""

    path: str
    pick: str
    do: Post


@dataclass(frozen=True)
class Until:
    """Look again every second until one of the picked values is `value`."""

    note: str
    path: str
    pick: str
    value: str


@dataclass(frozen=True)
class Approve:
    """The approvers vote on the request in this variable."""

    note: str
    request: str


Step = Get | Post | ForEach | Until | Approve


def steps(workload: int, image: str) -> tuple[Step, ...]:
    """The walk: draft, check, acknowledge, request, approve, start, past two holds, record."""
    draft = {"roles": {"prefill": {"image": image}, "decode": {"image": image}}}
    plan = {"workload": workload, "reason": "Try Lockstep", "draft": draft}
    return (
        Get("What serves now", f"workloads/{workload}", "state"),
        Post("Draft: the same new image on both sides", "plans", plan, pick="id", save="plan"),
        Until("A worker checks it against the live cluster", "plans/$plan", "state", "ready"),
        ForEach(
            "plans/$plan",
            "hazards.severity=warn.id",
            Post(
                "Say that each warning was read",
                "plans/$plan/acknowledge",
                {"hazard": "$each"},
                "plans/$plan",
            ),
        ),
        Post("Ask for approval", "plans/$plan/request", {}, "plans/$plan", "change_request", "request"),
        Approve("Vote", "request"),
        Post("Start", "plans/$plan/start", {}, "plans/$plan", "operation", "operation"),
        *_past_a_hold("It stops at the first complete row and asks again"),
        *_past_a_hold("It stops before the last old groups go"),
        Until("The rest goes by itself", "operations/$operation", "state", "succeeded"),
        Get("The update record", "update-records?operation=$operation", "results.0.outcome"),
    )


def _past_a_hold(note: str) -> tuple[Step, ...]:
    open_requests = "change-requests?subject_kind=operations.hold&subject_id=$operation&state=open"
    return (
        Until(note, open_requests, "results.state", "open"),
        Get("Which request", open_requests, "results.0.id", "hold"),
        Approve("Vote on it", "hold"),
    )


def pick(document: Any, path: str) -> list[Any]:
    """The values at a path; the same as the shell's pick."""
    found = [document]
    for key in path.split("."):
        if key.isdigit():
            found = [one[int(key)] for one in found]
            continue
        items = [each for one in found for each in (one if isinstance(one, list) else [one])]
        name, wanted, value = key.partition("=")
        found = [each for each in items if each[name] == value] if wanted else [each[name] for each in items]
    return found


def as_shell(facts: Mapping[str, Any]) -> str:
    """The walk as a script for bash or zsh with curl and python3."""
    operator = facts["people"]["olga"]
    approvers = "\n".join(f"{name} {facts['people'][name]['password']}" for name in APPROVERS)
    lines = [
        Template(PRELUDE).substitute(
            address=facts["address"], token=operator["token"], who=operator["name"], approvers=approvers
        )
    ]
    for step in steps(facts["workload"], facts["new_image"]):
        lines += _shell(step)
    return "\n".join(lines)


def _shell(step: Step) -> list[str]:
    match step:
        case Get():
            read = f"get {_word(step.path)} | pick {step.pick}"
            return [f"# {step.note}", f"{step.save}=$({read})" if step.save else read]
        case Post():
            return [f"# {step.note}", _shell_post(step)]
        case ForEach():
            values = f"$(get {_word(step.path)} | pick {step.pick})"
            return [f"# {step.do.note}", f"for each in {values}; do {_shell_post(step.do)}; done"]
        case Until():
            look = f"get {_word(step.path)} | pick {step.pick} | grep -qx {step.value}"
            return [f"# {step.note}", f"until {look}; do sleep 1; done"]
        case Approve():
            return [f"# {step.note}", f'approve "${step.request}"']


def _shell_post(step: Post) -> str:
    body = shlex.quote(json.dumps(step.body)).replace("$each", "'\"$each\"'")
    sent = f"post {_word(step.path)} {body}" + (f" {_word(step.etag)}" if step.etag else "")
    return f"{step.save}=$({sent} | pick {step.pick})" if step.save else f"{sent} >/dev/null"


def _word(path: str) -> str:
    return f'"{path}"'


class Walk:
    """Carries the steps out; `say` gets one line per step."""

    def __init__(self, facts: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self._facts = facts
        self._say = say
        self._operator = Client(facts["address"], token=facts["people"]["olga"]["token"])
        self.found: dict[str, str] = {}

    def go(self, image: str) -> str:
        """From draft to the update record; returns its outcome. Raises ApiProblem or TimeoutError."""
        result = ""
        for step in steps(self._facts["workload"], image):
            result = self._do(step)
        return result

    def _do(self, step: Step) -> str:
        match step:
            case Get():
                return self._tell(step.note, self._read(step.path, step.pick)[0], step.save)
            case Post():
                return self._post(step)
            case ForEach():
                for each in self._read(step.path, step.pick):
                    self.found["each"] = str(each)
                    self._post(step.do)
                return ""
            case Until():
                return self._wait(step)
            case Approve():
                return self._approve(step)

    def _read(self, path: str, at: str) -> list[Any]:
        return pick(self._operator.get(self._address(path)), at)

    def _post(self, step: Post) -> str:
        if step.etag:
            self._operator.get(self._address(step.etag))
        body = json.loads(Template(json.dumps(step.body)).safe_substitute(self.found))
        sent = self._operator.post(
            self._address(step.path), body, if_match=self._operator.etag if step.etag else ""
        )
        return self._tell(step.note, pick(sent, step.pick)[0] if step.pick else "", step.save)

    def _wait(self, step: Until) -> str:
        end = time.monotonic() + _PATIENCE_S
        while step.value not in (seen := self._read(step.path, step.pick)):
            if time.monotonic() > end:
                document = self._operator.get(self._address(step.path))
                raise TimeoutError(
                    f"{step.note}: {seen} instead of {step.value}\n{json.dumps(document, indent=2)}"
                )
            time.sleep(0.5)
        return self._tell(step.note, step.value, "")

    def _approve(self, step: Approve) -> str:
        path = f"/api/v1/change-requests/{self.found[step.request]}"
        for name in APPROVERS:
            request = self._operator.get(path)
            if request["state"] != "open":
                break
            person = Client(self._facts["address"])
            person.sign_in(name, self._facts["people"][name]["password"])
            person.post(f"{path}/votes", {"choice": "approve", "digest": request["digest"]})
        return self._tell(step.note, self._operator.get(path)["state"], "")

    def _address(self, path: str) -> str:
        return "/api/v1/" + Template(path).substitute(self.found)

    def _tell(self, note: str, seen: object, save: str) -> str:
        if save:
            self.found[save] = str(seen)
        self._say(f"{note}: {seen}" if seen != "" else note)
        return str(seen)


def main() -> None:
    """Read the facts of a running demo, and print the walk or carry it out."""
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.walk", description=__doc__)
    parser.add_argument("facts", type=Path)
    parser.add_argument("--print", action="store_true", help="as a shell script, instead of doing it")
    parser.add_argument("--image", help="another new image than the usual one")
    arguments = parser.parse_args()
    facts = json.loads(arguments.facts.read_text(encoding="utf-8"))
    if arguments.print:
        print(as_shell(facts))
        return
    try:
        Walk(facts, lambda line: print(line, flush=True)).go(arguments.image or facts["new_image"])
    except (ApiProblem, TimeoutError) as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
