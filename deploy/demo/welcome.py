"""What a person reads when the demo is ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from deploy.demo.office import Person
from deploy.demo.seed import NAMESPACE, NEW_IMAGE, SET, Story
from deploy.demo.story import ADMIN, CHAT, CODE, OPERATOR, POOLS
from deploy.demo.walk import as_shell
from deploy.demo.world import MODEL_HEADER, WorldFacts

_MEANING = {
    "admin": "clusters and people",
    "operator": "drafts, starts and steers",
    "approver": "votes, signed in",
    "viewer": "reads",
}


def of_the_rig(story: Story, *, logs: Path, facts: Path) -> str:
    """Address, people, and an upgrade from draft to end as curl commands."""
    rows = [
        f"  {person.name:<6}{person.role:<10}{person.password:<22}{person.token:<63}{_MEANING[person.role]}"
        for person in story.people.values()
    ]
    return f"""
Real: PostgreSQL, Valkey, etcd, kube-apiserver, scheduler, controllers, the LeaderWorkerSet and DisaggregatedSet
controllers with their webhooks, the admission policies, Envoy (or a small proxy of ours where its package is missing),
every process of Lockstep. Played by small programs of ours: the gateway's controller, the router, the engines (real
HTTP, no model). Simulated: nodes and kubelets.

The model answers at {story.served_at}/v1/completions

Demo people (of this start only; never use them for anything else):
  name  role      password              token
{chr(10).join(rows)}

Cluster access as its administrator: export KUBECONFIG={story.kubeconfig}
Logs: {logs}

An upgrade of {NAMESPACE}/{SET} to {NEW_IMAGE}, from draft to end (paste it into a shell):

{as_shell(story.facts())}

The same without curl: .venv/bin/python -m deploy.demo.walk {facts}
Ctrl-C ends everything.

Lockstep is ready: {story.address}"""


_REALITY = """\
Real: every process of Lockstep, PostgreSQL, Valkey, the admission policies that hold a rollout (evaluated as shipped),
Envoy (or a small proxy of ours where its package is missing).
Played by small programs of ours over real HTTP and gRPC: the gateway's controller, the routers, the engines (vLLM's
API, metrics and transfer rules, no model), the metric source (Prometheus' API).
Simulated: three Kubernetes clusters with their API servers, controllers, nodes and kubelets. `make demo REAL=1` runs on
a real control plane; it needs Go."""
_STORY = """
The story goes on beside this for a few minutes (upgrades to a hold, to a red gate, to their end, one aborted, one
asked for; a lease that is too short; a cluster that stops answering) and says here what has happened:"""


def of_emulators(
    address: str,
    *,
    people: Iterable[Person],
    worlds: Mapping[str, WorldFacts],
    logs: Path,
    facts: Path,
    story: bool,
) -> str:
    """Address, people, what is real, what to look at."""
    named = {person.name: person for person in people}
    rows = [
        f"  {person.name:<9}{person.password:<18}{', '.join(person.roles):<22}{person.does}"
        for person in named.values()
    ]
    clusters = [
        f"  {name:<10}{', '.join(f'{each.namespace}/{each.name}' for each in POOLS if each.cluster == name)}"
        for name in worlds
    ]
    return f"""
{_REALITY}

Clusters and pools:
{chr(10).join(clusters)}

Demo people (of this start only; never use them for anything else):
  name     password          roles                 does
{chr(10).join(rows)}

Look around (tokens of {OPERATOR} and {ADMIN}):
  T='Authorization: Bearer {named[OPERATOR].token}'; A={address}/api/v1
  curl -s -H "$T" $A/pools                      what serves, shares planned and measured
  curl -s -H "$T" $A/operations                 what runs, what it waits for, who can act
  curl -s -H "$T" $A/change-requests?state=open    what waits for votes
  curl -s -H "$T" $A/update-records             what was changed, with its evidence
  curl -s -H "$T" $A/combinations?state=verified   what can be restored
  curl -s -H 'Authorization: Bearer {named[ADMIN].token}' $A/audit   who did what
  Every address: {address}/api/v1/schema
Ask a model: curl -s {worlds[CHAT.cluster].public_url}/v1/completions -H '{MODEL_HEADER}: {CODE.model}' \\
    -H 'Content-Type: application/json' -d '{{"model": "{CODE.model}", "prompt": "Hello", "max_tokens": 8}}'
A cluster as its administrator: export KUBECONFIG={worlds[CHAT.cluster].kubeconfigs["admin"]}
Logs: {logs}    For scripts: {facts}

In another terminal: make tour      an upgrade to verified, a red gate with abort, a restore
Ctrl-C ends everything.
{_STORY if story else ""}

Lockstep is ready: {address}"""
