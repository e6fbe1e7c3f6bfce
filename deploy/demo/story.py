"""The story that the demo tells, as data: clusters, pools, people. The same at every start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.demo.engines.roles import engine_options
from deploy.rig.nodes import NodePool
from deploy.rig.workloads import role

Json = dict[str, Any]

IMAGE = "vllm/vllm-openai"
OLDER, OLD, NEW = f"{IMAGE}:v0.30.0", f"{IMAGE}:v0.30.1", f"{IMAGE}:v0.33.0"
EU, US, LAB = "prod-eu1", "prod-us2", "lab-eu1"


@dataclass(frozen=True)
class ServedPool:
    """A model that is served: a set of that name with its router, pool and route, in a namespace.

    ``rate`` is the steady load in requests per second; 0 for none.
    """

    cluster: str
    namespace: str
    name: str
    model: str
    prefill: int
    decode: int
    tp: int = 1
    image: str = OLD
    rate: float = 0.0

    @property
    def address(self) -> str:
        """Where it is, as people say it."""
        return f"{self.cluster} {self.namespace}/{self.name}"

    @property
    def credential(self) -> str:
        """The file with the headers of its probes."""
        return f"{self.cluster}.{self.namespace}.{self.name}"

    def roles(self) -> list[Json]:
        """The roles of its set."""
        sides = {"prefill": self.prefill, "decode": self.decode}
        return [
            role(name, groups, **{**engine_options(name, self.model, tp=self.tp), "image": self.image})
            for name, groups in sides.items()
        ]


CHAT = ServedPool(EU, "serving", "llama-70b-chat", "meta-llama/Llama-3.3-70B-Instruct", 6, 4, tp=4, rate=2.0)
BATCH = ServedPool(
    EU, "batch", "gpt-oss-120b-batch", "openai/gpt-oss-120b", 2, 1, tp=4, image=OLDER, rate=1.5
)
CODE = ServedPool(EU, "serving", "qwen3-32b-code", "Qwen/Qwen3-32B", 2, 2, tp=2, rate=0.5)
EMBED = ServedPool(EU, "search", "qwen3-8b-embed", "Qwen/Qwen3-8B", 1, 1)
GUARD = ServedPool(US, "safety", "llama-8b-guard", "meta-llama/Llama-3.1-8B-Instruct", 2, 1, rate=2.0)
TOOLS = ServedPool(
    US, "serving", "mistral-small-tools", "mistralai/Mistral-Small-24B-Instruct-2501", 2, 1, rate=2.5
)
CHAT_US = ServedPool(
    US, "serving", "llama-70b-chat", "meta-llama/Llama-3.3-70B-Instruct", 2, 1, tp=4, rate=1.0
)
CODE_US = ServedPool(US, "serving", "qwen3-32b-code", "Qwen/Qwen3-32B", 4, 2, tp=2, rate=0.5)
EVAL = ServedPool(LAB, "eval", "deepseek-v3-eval", "deepseek-ai/DeepSeek-V3", 1, 1, tp=8, rate=0.2)
POOLS = (CHAT, BATCH, CODE, EMBED, GUARD, TOOLS, CHAT_US, CODE_US, EVAL)


@dataclass(frozen=True)
class StoryCluster:
    """A simulated cluster: its environment, and how many nodes of eight GPUs it has."""

    name: str
    environment: str
    nodes: int

    @property
    def pools(self) -> tuple[ServedPool, ...]:
        """What it serves."""
        return tuple(pool for pool in POOLS if pool.cluster == self.name)

    @property
    def machines(self) -> NodePool:
        """Its nodes."""
        return NodePool(count=self.nodes, prefix=f"{self.name}-n")


CLUSTERS = (
    StoryCluster(EU, "production", 16),
    StoryCluster(US, "production", 12),
    StoryCluster(LAB, "development", 4),
)


@dataclass(frozen=True)
class Part:
    """What somebody does in the story. ``grants`` are (role, cluster), "" for everywhere; ``scopes`` those of a
    token, none for people who only sign in."""

    does: str
    grants: tuple[tuple[str, str], ...]
    scopes: tuple[str, ...] = ()


CAST: Mapping[str, Part] = {
    "ada": Part("administers clusters and people", (("admin", ""),), ("admin", "read")),
    "ravi.n": Part("drafts, starts and steers upgrades", (("operator", ""),), ("plan", "operate", "read")),
    "jonas.w": Part("the same, and votes", (("operator", ""), ("approver", "")), ("plan", "operate", "read")),
    "petra.h": Part("edits plans in prod-eu1", (("operator", EU),), ("plan", "read")),
    "mira.l": Part("votes", (("approver", ""),), ("read",)),
    "tove.s": Part("votes, and restores", (("approver", ""), ("operator", "")), ("read",)),
    "vic": Part("reads prod-us2 only", (("viewer", US),), ("read",)),
}
ADMIN, OPERATOR, VOTERS = "ada", "ravi.n", ("mira.l", "tove.s")
