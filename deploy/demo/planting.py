"""What a demo on emulators finds when it begins: people with roles, clusters with metric sources, pools that can be
probed. Made through the REST API; only the first administrator is made by manage.py, as at every new installation."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from deploy.demo.client import Client
from deploy.demo.office import API, Person
from deploy.demo.path import PROBE_HEADER
from deploy.demo.processes import Product
from deploy.demo.story import ADMIN, CAST, CLUSTERS, OPERATOR, POOLS, Part, ServedPool
from deploy.demo.world import WorldFacts, headers_of

Json = dict[str, Any]
_TOKEN_DAYS = 30


def make_administrator(product: Product) -> Person:
    """The first account, from the command line."""
    password = secrets.token_urlsafe(12)
    part = CAST[ADMIN]
    token = product.manage(
        *("create_person", ADMIN, "--role", "admin", "--token", ",".join(part.scopes)),
        LOCKSTEP_NEW_PASSWORD=password,
    )
    return _person(ADMIN, part, password, token.strip())


def make_people(admin: Client) -> dict[str, Person]:
    """All others of the cast, with grants and tokens. `admin` is signed in: a token makes no tokens."""

    def make(name: str) -> Person:
        part, password = CAST[name], secrets.token_urlsafe(12)
        admin.post(f"{API}/people", {"username": name, "password": password})
        for role, cluster in part.grants:
            admin.post(f"{API}/people/{name}/give-grant", {"role": role, "cluster": cluster})
        expires = datetime.now(UTC) + timedelta(days=_TOKEN_DAYS)
        body = {"name": "demo", "owner": name, "scopes": list(part.scopes), "expires_at": expires.isoformat()}
        return _person(name, part, password, str(admin.post(f"{API}/tokens", body)["secret"]))

    with ThreadPoolExecutor(max_workers=3) as at_once:
        names = [name for name in CAST if name != ADMIN]
        return dict(zip(names, at_once.map(make, names), strict=True))


def _person(name: str, part: Part, password: str, token: str) -> Person:
    roles = tuple(f"{role} in {cluster}" if cluster else role for role, cluster in part.grants)
    return Person(name, password, token, part.does, roles)


def write_kubeconfig(path: Path, worlds: Iterable[WorldFacts]) -> None:
    """One file with Lockstep's accounts in all clusters; contexts have the clusters' names."""
    merged: Json = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
    for world in worlds:
        found = yaml.safe_load(Path(world.kubeconfigs["lockstep"]).read_text())
        merged["clusters"].append({"name": world.name, "cluster": found["clusters"][0]["cluster"]})
        merged["users"].append({"name": world.name, "user": found["users"][0]["user"]})
        merged["contexts"].append(
            {"name": world.name, "context": {"cluster": world.name, "user": world.name}}
        )
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(merged))


def write_credentials(folder: Path, worlds: Mapping[str, WorldFacts]) -> None:
    """What probes of each pool carry."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for pool in POOLS:
        world = worlds[pool.cluster]
        headers = {PROBE_HEADER: world.probe_secret, **headers_of(pool)}
        (folder / pool.credential).write_text(json.dumps({"urls": [world.probe_url], "headers": headers}))


def register_clusters(admin: Client, worlds: Mapping[str, WorldFacts]) -> None:
    """Each with its environment and its metric source."""
    for cluster in CLUSTERS:
        body = {"name": cluster.name, "context": cluster.name, "environment": cluster.environment}
        made = admin.post(f"{API}/clusters", body)
        admin.patch(
            f"{API}/clusters/{made['id']}",
            {"metrics_url": worlds[cluster.name].metrics_url},
            if_match=admin.etag,
        )


def wait_seen(product: Product, people: Mapping[str, Person]) -> None:
    """Until every set is settled, every pool is seen and every cluster may be written to."""
    admin = Client(product.address, token=people[ADMIN].token)
    product.wait_until("watcher", "all sets in the fleet", lambda: _settled(admin) == len(POOLS))
    product.wait_until("worker", "the right to write to the clusters", lambda: _ours(admin))
    product.wait_until("watcher", "all pools", lambda: len(admin.list(f"{API}/pools")) == len(POOLS))


def say_how_to_probe(
    product: Product, people: Mapping[str, Person], worlds: Mapping[str, WorldFacts]
) -> None:
    """What no object of a cluster says: where the gateway listens, and which model to ask for."""
    operator = Client(product.address, token=people[OPERATOR].token)
    rows = {
        (row["cluster"], row["namespace"], row["name"]): row["id"] for row in operator.list(f"{API}/pools")
    }
    for pool in POOLS:
        path = f"{API}/pools/{rows[pool.cluster, pool.namespace, pool.name]}"
        operator.get(path)
        settings = _settings(pool, worlds[pool.cluster])
        operator.patch(path, {"settings": settings}, if_match=operator.etag)


def _settings(pool: ServedPool, world: WorldFacts) -> Json:
    return {
        "probe_url": world.probe_url,
        "public_url": world.public_url,
        "model": pool.model,
        "credential": pool.credential,
        "rate": 20,
    }


def _settled(admin: Client) -> int:
    return sum(each["state"] == "settled" for each in admin.list(f"{API}/workloads"))


def _ours(admin: Client) -> bool:
    rows = admin.list(f"{API}/clusters")
    return len(rows) == len(CLUSTERS) and all(each["writes"] == "ours" for each in rows)
