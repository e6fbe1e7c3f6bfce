"""What a demo finds when it begins: people, one cluster, one set; all made as anybody would make them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from deploy.demo.client import Client
from deploy.demo.engines.roles import engine_options
from deploy.demo.path import ServedPath
from deploy.demo.processes import Product
from deploy.rig.rig import Rig
from deploy.rig.workloads import role

Json = dict[str, Any]

CLUSTER = "demo"
NAMESPACE = "llm"
SET = "llama-70b"
MODEL = "meta-llama/Llama-3.1-70B-Instruct"
CREDENTIAL = "llama-70b"
IMAGE = "vllm/vllm-openai:v0.30.0"
NEW_IMAGE = "vllm/vllm-openai:v0.33.0"
# name → role everywhere, and the scopes of a token (none: this person only signs in).
CAST: Mapping[str, tuple[str, str]] = {
    "ada": ("admin", "admin,read"),
    "olga": ("operator", "plan,operate,read"),
    "ana": ("approver", "read"),
    "ben": ("approver", "read"),
    "vic": ("viewer", "read"),
}


@dataclass(frozen=True)
class Person:
    """One of the demo people. Password and token are made anew at every start."""

    name: str
    role: str
    password: str
    token: str


@dataclass(frozen=True)
class Story:
    """Where the demo is and who is in it."""

    address: str
    people: Mapping[str, Person]
    workload: int
    kubeconfig: str
    served_at: str

    def facts(self) -> Json:
        """The story as JSON, for scripts."""
        return {
            "address": self.address,
            "people": {name: asdict(person) for name, person in self.people.items()},
            "workload": self.workload,
            "kubeconfig": self.kubeconfig,
            "served_at": self.served_at,
            "model": MODEL,
            "new_image": NEW_IMAGE,
        }


def plant(product: Product, rig: Rig, path: ServedPath) -> Story:
    """Make people, the cluster and a served model, say how it is probed, and wait until Lockstep sees all of it and
    may write to the cluster. `path` has been started in the namespace."""
    path.serve(SET, engines())
    with ThreadPoolExecutor(max_workers=2) as at_once:
        people = dict(zip(CAST, at_once.map(lambda name: make_person(product, name), CAST), strict=True))
    admin = Client(product.address, token=people["ada"].token)
    admin.post("/api/v1/clusters", {"name": CLUSTER, "context": "rig", "environment": "production"})
    product.wait_until("watcher", "the seeded set in the fleet", lambda: bool(_workloads(admin)))
    product.wait_until("worker", "the right to write to the cluster", lambda: _may_write(admin))
    operator = Client(product.address, token=people["olga"].token)
    product.wait_until("watcher", "the pool of the model", lambda: bool(operator.list("/api/v1/pools")))
    _say_how_to_probe(operator, path)
    return Story(
        served_at=path.public_url,
        address=product.address,
        people=people,
        workload=int(_workloads(admin)[0]["id"]),
        kubeconfig=str(rig.kubeconfig("admin")),
    )


def make_person(product: Product, name: str) -> Person:
    """Create one account with a random password, and a token."""
    grant, scopes = CAST[name]
    password = secrets.token_urlsafe(15)
    token = product.manage(
        "create_person", name, "--role", grant, "--token", scopes, LOCKSTEP_NEW_PASSWORD=password
    )
    return Person(name, grant, password, token.strip())


def _say_how_to_probe(operator: Client, path: ServedPath) -> None:
    """What no object of the cluster says: where the gateway listens, and which model to ask for."""
    pool = f"/api/v1/pools/{operator.list('/api/v1/pools')[0]['id']}"
    operator.get(pool)
    settings = {
        "probe_url": path.probe_url,
        "public_url": path.public_url,
        "model": MODEL,
        "credential": CREDENTIAL,
        "rate": 20,
    }
    operator.patch(pool, {"settings": settings}, if_match=operator.etag)


def engines() -> list[Json]:
    """The roles of a set of 4 prefill and 2 decode groups with the image and arguments of a vLLM pair."""
    sides = {"prefill": 4, "decode": 2}
    return [
        role(name, groups, **{**engine_options(name, MODEL, tp=4), "image": IMAGE})
        for name, groups in sides.items()
    ]


def _workloads(admin: Client) -> list[Json]:
    found = admin.list("/api/v1/workloads", cluster=CLUSTER)
    return [each for each in found if each["name"] == SET and each["state"] == "settled"]


def _may_write(admin: Client) -> bool:
    return any(each["writes"] == "ours" for each in admin.list("/api/v1/clusters"))
