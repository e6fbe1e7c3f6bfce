"""Compatibility rules as data: which factor is checked by which engine, from which version on.

The columns are the vLLM wheels that were read: 0.14, 0.17, 0.20, 0.23, 0.26, 0.29, 0.30 and 0.33
(research/telemetry.md 3.2). Between two columns that differ, and outside them, the answer is "not known".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Release = tuple[int, int]

FIRST_READ: Release = (0, 14)
LAST_READ: Release = (0, 33)
_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.+\-_a-zA-Z].*)?$")


@dataclass(frozen=True, slots=True)
class HashFactor:
    """One input of NIXL's compatibility hash.

    `always` factors are in it in every release that was read. Others were added between `absent_until` and
    `present_from`, and may have gone between `present_until` and `absent_from`.
    """

    id: str
    label: str
    absent_until: Release | None = None
    present_from: Release = FIRST_READ
    present_until: Release = LAST_READ
    absent_from: Release | None = None

    @property
    def always(self) -> bool:
        """Whether every release that was read hashes it."""
        return self.absent_until is None and self.absent_from is None

    def in_hash(self, release: Release | None) -> bool | None:
        """Whether that release hashes it; None where this is not known."""
        if release is None or not FIRST_READ <= release <= LAST_READ:
            return None
        if self.present_from <= release <= self.present_until:
            return True
        if self.absent_until is not None and release <= self.absent_until:
            return False
        return False if self.absent_from is not None and release >= self.absent_from else None


VERSION = "vllm-version"
MODEL = "model"
DTYPE = "dtype"
GEOMETRY = "kv-geometry"
BACKEND = "attention-backend"
CACHE_DTYPE = "kv-cache-dtype"
CROSS_LAYER = "cross-layer-blocks"
HYBRID = "hybrid-kv-manager"
SPECULATIVE = "speculative"
MODE = "transfer-mode"
BLOCK_SIZE = "block-size"
LAYOUT = "kv-layout"
TENSOR_PARALLEL = "tensor-parallel"
PIPELINE_PARALLEL = "pipeline-parallel"
DECODE_CONTEXT = "decode-context-parallel"
PREFILL_CONTEXT = "prefill-context-parallel"
CONNECTOR = "connector"
WEIGHTS = "model-revision"
QUANTIZATION = "quantization"
ENGINE = "engine"
IMAGE = "image"

HASH_FACTORS: tuple[HashFactor, ...] = (
    HashFactor(VERSION, "exact vLLM version"),
    HashFactor(MODEL, "model as it is named"),
    HashFactor(DTYPE, "model dtype"),
    HashFactor(GEOMETRY, "KV heads, head size and layers"),
    HashFactor(BACKEND, "attention backend"),
    HashFactor(CACHE_DTYPE, "KV cache dtype"),
    HashFactor(
        CROSS_LAYER,
        "cross-layer blocks",
        absent_until=(0, 14),
        present_from=(0, 17),
        present_until=(0, 26),
        absent_from=(0, 29),
    ),
    HashFactor(HYBRID, "hybrid KV cache manager", absent_until=(0, 17), present_from=(0, 20)),
    HashFactor(SPECULATIVE, "EAGLE or MTP draft", absent_until=(0, 26), present_from=(0, 29)),
    HashFactor(MODE, "transfer mode", absent_until=(0, 26), present_from=(0, 29)),
)

# NIXL connector protocol by the release that was read. It follows from the version and is hashed with it.
PROTOCOLS: Mapping[Release, int] = {
    (0, 14): 2,
    (0, 17): 2,
    (0, 20): 2,
    (0, 23): 4,
    (0, 26): 5,
    (0, 29): 9,
    (0, 30): 11,
    (0, 33): 15,
}

# The protocol sends DCP and PCP sizes from its number 8 on, which is first seen in this release.
CONTEXT_PARALLEL_SINCE: Release = (0, 29)
# A decode TP above the number of KV heads: refused in this release (vllm#45330), taken from the other one on.
REPLICATED_DECODE_REFUSED: Release = (0, 21)
REPLICATED_DECODE_TAKEN: Release = (0, 29)
# VLLM_ATTENTION_BACKEND: read up to the first, ignored from the second on.
BACKEND_VARIABLE_READ: Release = (0, 11)
BACKEND_VARIABLE_IGNORED: Release = (0, 17)

# Speculative methods that add hidden-state layers, and so are hashed; the others move nothing of their own.
PLAIN_DRAFTS = frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator", "draft_model"})
SPECULATIVE_KEYS = ("method", "model", "revision", "code_revision", "parallel_drafting")

# SGLang's decode compares these with the prefill's bootstrap server and nothing else (3.8).
SGLANG_CHECKED: Mapping[str, str] = {
    "page-size": "Page size mismatch",
    "kv-cache-dtype": "KV cache dtype mismatch",
}

# KV memory layouts were renamed between 0.26 and 0.29; both names are accepted.
LAYOUT_NAMES: Mapping[str, str] = {"HND": "HND", "NHD": "NHD", "LBHNC": "HND", "LBNHC": "NHD"}

# Spellings of one dtype, as `--dtype` and config.json have them.
DTYPE_NAMES: Mapping[str, str] = {
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float": "float32",
    "fp32": "float32",
}


def release_of(version: str | None) -> Release | None:
    """Major and minor of a version string such as `0.30.1.dev3+gabc`, or None."""
    found = _RELEASE.match(version) if version else None
    return (int(found.group(1)), int(found.group(2))) if found else None


def base_of(version: str | None) -> str | None:
    """Major, minor and patch without what a build adds: `0.30.0` for `v0.30.0-cu130`; None if it is none."""
    found = _RELEASE.match(version) if version else None
    return f"{found.group(1)}.{found.group(2)}.{found.group(3) or 0}" if found else None


def protocol_of(version: str | None) -> int | None:
    """The NIXL connector protocol of a release that was read."""
    release = release_of(version)
    return PROTOCOLS.get(release) if release is not None else None


def dtype_name(text: str) -> str:
    """One spelling for each dtype."""
    name = text.strip().lower().removeprefix("torch.")
    return DTYPE_NAMES.get(name, name)
