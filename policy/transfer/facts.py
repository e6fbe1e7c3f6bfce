"""What is known about the engines of one role in one revision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.transfer.arguments import EngineArguments
from policy.transfer.command import parse_image
from policy.transfer.models import ModelGeometry
from policy.transfer.values import Kind


@dataclass(frozen=True, slots=True)
class LiveFacts:
    """What running engines say of themselves; None and empty where nobody could ask.

    `version` is the exact answer of `GET /version`, `model_root` the root of `GET /v1/models`, `cache_config`
    the labels of `vllm:cache_config_info`. Attention backend and compatibility hash stand in logs alone.
    """

    engine: Kind | None = None
    version: str | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)
    model_root: str | None = None
    max_model_len: int | None = None
    attention_backend: str | None = None
    compatibility_hash: str | None = None


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """How the engines are attached. `fabric` is the full path of the fabric domain they stand in."""

    rdma: bool | None = None
    fabric: str | None = None
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One side of a pair.

    `image_digests` are all digests seen in the pods of the revision (their imageID: tags lie).
    `model_artifact` names the weights that were really loaded, as a commit or a digest. `file_digests` are
    the contents of mounted files that flags name, by path.
    """

    arguments: EngineArguments
    image_digests: tuple[str, ...] = ()
    live: LiveFacts = field(default_factory=LiveFacts)
    gpu_product: str | None = None
    geometry: ModelGeometry | None = None
    model_artifact: str | None = None
    file_digests: Mapping[str, str] = field(default_factory=dict)
    link: LinkFacts = field(default_factory=LinkFacts)

    @property
    def kind(self) -> Kind:
        """The engine, from what is started or from what answers."""
        if self.arguments.kind != "unknown":
            return self.arguments.kind
        return self.live.engine or "unknown"

    @property
    def digest(self) -> str | None:
        """The one digest that all pods run, or that the pod spec pins; None if unknown or not one."""
        digests = {parse_image(each)[2] or each for each in self.image_digests}
        if len(digests) == 1:
            return next(iter(digests))
        return parse_image(self.arguments.image)[2] if not digests else None


@dataclass(frozen=True, slots=True)
class RevisionFacts:
    """The engines of one revision; None for a role that it does not have or that nothing is known of."""

    name: str
    prefill: EngineFacts | None
    decode: EngineFacts | None
