"""What a person reads when the demo is ready."""

from __future__ import annotations

from pathlib import Path

from deploy.demo.seed import NAMESPACE, NEW_IMAGE, SET, Story
from deploy.demo.walk import as_shell

_MEANING = {
    "admin": "clusters and people",
    "operator": "drafts, starts and steers",
    "approver": "votes, signed in",
    "viewer": "reads",
}


def text(story: Story, *, logs: Path, facts: Path) -> str:
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
