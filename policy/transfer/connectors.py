"""The KV connector of a vLLM engine, read from `--kv-transfer-config`. Keys: research/telemetry.md 3.4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from policy.transfer.arguments import EngineArguments
from policy.transfer.values import JsonValue, truth

FLAG = "kv-transfer-config"
MULTI = "MultiConnector"
Mode = Literal["pull", "push"]

# The connectors that move KV between engines, with the family whose rules they follow.
FAMILIES: Mapping[str, str] = {
    "NixlConnector": "nixl",
    "NixlPullConnector": "nixl",
    "NixlPushConnector": "nixl",
    "MooncakeConnector": "mooncake",
    "MoRIIOConnector": "moriio",
    "P2pNcclConnector": "p2p-nccl",
}
_PUSHES = frozenset({"NixlPushConnector", "MooncakeConnector", "P2pNcclConnector"})
# Keys that differ by role or by pod and change nothing about the KV.
ROLE_KEYS = frozenset({"kv_role", "kv_rank", "kv_ip", "kv_port", "engine_id", "kv_parallel_size"})


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector. `wrapped` is true where it stands inside a MultiConnector."""

    name: str
    role: str | None
    settings: Mapping[str, JsonValue]
    extra: Mapping[str, JsonValue]
    source: str
    wrapped: bool = False
    load_failure_policy: str | None = None

    @property
    def family(self) -> str | None:
        """The family of connectors that move KV from engine to engine; None for caches and tiers."""
        return FAMILIES.get(self.name)

    @property
    def mode(self) -> Mode:
        """Whether the decode engine reads (pull) or the prefill engine writes (push)."""
        return "push" if self.name in _PUSHES else "pull"

    @property
    def enforces(self) -> bool:
        """Whether it refuses a peer with another compatibility hash; only a plain no turns that off."""
        return truth(self.extra.get("enforce_handshake_compat", True)) is not False

    @property
    def buffer_device(self) -> str:
        """Where the KV to be moved lies: cuda by default, cpu for a host staging buffer."""
        return str(self.settings.get("kv_buffer_device") or "cuda")

    def switch(self, name: str) -> bool:
        """A yes or no of the settings or of the extra config, off where it is not given."""
        return truth(self.settings.get(name, self.extra.get(name, False))) is True


@dataclass(frozen=True, slots=True)
class Connectors:
    """What is known about the connectors of one engine; `hidden` says why something may be unseen."""

    found: tuple[Connector, ...]
    hidden: str | None
    warnings: tuple[str, ...] = field(default=())

    @property
    def transfer(self) -> Connector | None:
        """The connector that moves KV between engines. With several, vLLM asks the first that can."""
        moving = [each for each in self.found if each.family is not None]
        return moving[0] if moving else (self.found[0] if self.found else None)


def read_connectors(arguments: EngineArguments) -> Connectors:
    """The connectors of an engine, MultiConnector unfolded."""
    hidden = arguments.hidden(FLAG)
    given = arguments.flags.get(FLAG)
    if given is None:
        return Connectors((), hidden)
    if not isinstance(given.value, dict):
        return Connectors((), hidden or f"{given.source} is no JSON object")
    found: list[Connector] = []
    warnings: list[str] = []
    _unfold(given.value, given.source, found, warnings, depth=0)
    if not found:
        warnings.append(f"{given.source} names no kv_connector; the engine moves no KV.")
    return Connectors(tuple(found), hidden, tuple(warnings))


def _unfold(
    config: Mapping[str, JsonValue], source: str, found: list[Connector], warnings: list[str], *, depth: int
) -> None:
    name = config.get("kv_connector")
    extra = config.get("kv_connector_extra_config")
    extra = extra if isinstance(extra, dict) else {}
    if not isinstance(name, str) or not name:
        return
    if name != MULTI:
        found.append(_connector(name, config, extra, source, wrapped=depth > 0))
        return
    inner = extra.get("connectors")
    if not isinstance(inner, list) or not inner:
        warnings.append(f"{source} is a MultiConnector without connectors.")
        return
    if depth > 3:
        warnings.append(f"{source} nests connectors more than three deep; the rest was left out.")
        return
    for index, each in enumerate(inner):
        if isinstance(each, dict):
            _unfold(each, f"{source} connectors[{index}]", found, warnings, depth=depth + 1)


def _connector(
    name: str, config: Mapping[str, JsonValue], extra: Mapping[str, JsonValue], source: str, *, wrapped: bool
) -> Connector:
    role, policy = config.get("kv_role"), config.get("kv_load_failure_policy")
    return Connector(
        name=name,
        role=role if isinstance(role, str) else None,
        settings={key: value for key, value in config.items() if key != "kv_connector_extra_config"},
        extra=extra,
        source=source,
        wrapped=wrapped,
        load_failure_policy=policy if isinstance(policy, str) else None,
    )
