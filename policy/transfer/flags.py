"""Flags of the engines as data: other names, which take no value, which take several, which hold JSON.

Names are written with dashes and without the leading ones. Sources: the argument parsers of vLLM 0.14 to
0.33, SGLang 0.5 and `trtllm-serve`; research/telemetry.md 3.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.transfer.values import Kind


@dataclass(frozen=True, slots=True)
class FlagTable:
    """One engine's flags. `aliases` maps long names, `short` the names that stand behind a single dash."""

    aliases: Mapping[str, str] = field(default_factory=dict)
    short: Mapping[str, str] = field(default_factory=dict)
    booleans: frozenset[str] = frozenset()
    several: frozenset[str] = frozenset()
    json: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    decisive: frozenset[str] = frozenset()

    def known(self, name: str) -> bool:
        """Whether this flag is in any list, so that argparse would not take it for an abbreviation."""
        lists = (self.booleans, self.several, self.json, self.files, self.decisive)
        return any(name in names for names in lists) or name in self.aliases


VLLM = FlagTable(
    short={
        "tp": "tensor-parallel-size",
        "pp": "pipeline-parallel-size",
        "dp": "data-parallel-size",
        "dcp": "decode-context-parallel-size",
        "pcp": "prefill-context-parallel-size",
        "q": "quantization",
        "sc": "speculative-config",
        "cc": "compilation-config",
        "ac": "attention-config",
        "asc": "api-server-count",
        "ep": "enable-expert-parallel",
        "O": "optimization-level",
    },
    booleans=frozenset(
        {
            "async-scheduling",
            "calculate-kv-scales",
            "data-parallel-external-lb",
            "data-parallel-hybrid-lb",
            "disable-access-log-for-endpoints",
            "disable-cascade-attn",
            "disable-custom-all-reduce",
            "disable-fastapi-docs",
            "disable-frontend-multiprocessing",
            "disable-hybrid-kv-cache-manager",
            "disable-log-requests",
            "disable-log-stats",
            "disable-sliding-window",
            "disable-uvicorn-access-log",
            "enable-auto-tool-choice",
            "enable-chunked-prefill",
            "enable-dbo",
            "enable-eplb",
            "enable-expert-parallel",
            "enable-force-include-usage",
            "enable-log-outputs",
            "enable-log-requests",
            "enable-lora",
            "enable-prefix-caching",
            "enable-prompt-embeds",
            "enable-prompt-tokens-details",
            "enable-request-id-headers",
            "enable-return-routed-experts",
            "enable-server-load-tracking",
            "enable-sleep-mode",
            "enable-tokenizer-info-endpoint",
            "enforce-eager",
            "fully-sharded-loras",
            "headless",
            "interleave-mm-strings",
            "kv-sharing-fast-prefill",
            "language-model-only",
            "log-error-stack",
            "mm-encoder-only",
            "return-tokens-as-token-ids",
            "skip-mm-profiling",
            "skip-tokenizer-init",
            "trust-remote-code",
            "trust-request-chat-template",
            "use-tqdm-on-load",
        }
    ),
    several=frozenset(
        {
            "allowed-origins",
            "allowed-methods",
            "allowed-headers",
            "api-key",
            "cudagraph-capture-sizes",
            "lora-modules",
            "middleware",
            "served-model-name",
        }
    ),
    json=frozenset(
        {
            "additional-config",
            "attention-config",
            "compilation-config",
            "eplb-config",
            "hf-overrides",
            "kv-events-config",
            "kv-transfer-config",
            "limit-mm-per-prompt",
            "model-loader-extra-config",
            "override-generation-config",
            "rope-scaling",
            "speculative-config",
            "structured-outputs-config",
        }
    ),
    files=frozenset({"config"}),
    decisive=frozenset(
        {
            "attention-backend",
            "attention-config",
            "block-size",
            "code-revision",
            "decode-context-parallel-size",
            "disable-hybrid-kv-cache-manager",
            "dtype",
            "hf-overrides",
            "kv-cache-dtype",
            "kv-transfer-config",
            "model",
            "pipeline-parallel-size",
            "prefill-context-parallel-size",
            "quantization",
            "revision",
            "rope-scaling",
            "rope-theta",
            "speculative-config",
            "tensor-parallel-size",
            "tokenizer",
            "tokenizer-revision",
        }
    ),
)

SGLANG = FlagTable(
    aliases={
        "model-path": "model",
        "tp": "tensor-parallel-size",
        "tp-size": "tensor-parallel-size",
        "pp": "pipeline-parallel-size",
        "pp-size": "pipeline-parallel-size",
        "dp": "data-parallel-size",
        "dp-size": "data-parallel-size",
        "ep": "expert-parallel-size",
        "ep-size": "expert-parallel-size",
        "tokenizer-path": "tokenizer",
        "json-model-override-args": "hf-overrides",
    },
    booleans=frozenset(
        {
            "disable-chunked-prefix-cache",
            "disable-cuda-graph",
            "disable-cuda-graph-padding",
            "disable-custom-all-reduce",
            "disable-hybrid-swa-memory",
            "disable-outlines-disk-cache",
            "disable-overlap-schedule",
            "disable-radix-cache",
            "disable-shared-experts-fusion",
            "disaggregation-decode-enable-offload-kvcache",
            "disaggregation-decode-enable-radix-cache",
            "enable-cache-report",
            "enable-deepep-moe",
            "enable-dp-attention",
            "enable-dp-lm-head",
            "enable-eplb",
            "enable-hierarchical-cache",
            "enable-lora",
            "enable-metrics",
            "enable-metrics-for-all-schedulers",
            "enable-mixed-chunk",
            "enable-two-batch-overlap",
            "log-requests",
            "skip-server-warmup",
            "skip-tokenizer-init",
            "trust-remote-code",
        }
    ),
    several=frozenset({"cuda-graph-bs", "lora-paths", "bucket-time-to-first-token"}),
    json=frozenset({"hf-overrides", "model-loader-extra-config", "hicache-storage-backend-extra-config"}),
    files=frozenset({"config"}),
    decisive=frozenset(
        {
            "attention-backend",
            "decode-attention-backend",
            "disaggregation-mode",
            "disaggregation-transfer-backend",
            "dtype",
            "hf-overrides",
            "kv-cache-dtype",
            "model",
            "page-size",
            "pipeline-parallel-size",
            "prefill-attention-backend",
            "quantization",
            "revision",
            "speculative-algorithm",
            "speculative-draft-model-path",
            "tensor-parallel-size",
            "tokenizer",
        }
    ),
)

TRTLLM = FlagTable(
    aliases={
        "tp-size": "tensor-parallel-size",
        "pp-size": "pipeline-parallel-size",
        "ep-size": "expert-parallel-size",
        "model-path": "model",
        "extra-llm-api-options": "config",
    },
    booleans=frozenset({"trust-remote-code", "fail-fast-on-attention-window-too-large"}),
    files=frozenset({"config", "extra-engine-args"}),
    decisive=frozenset({"model", "tensor-parallel-size", "pipeline-parallel-size", "backend", "tokenizer"}),
)

TABLES: Mapping[Kind, FlagTable] = {"vllm": VLLM, "sglang": SGLANG, "trtllm": TRTLLM, "unknown": VLLM}

# Their values are never kept: they are secrets, and no rule needs them.
SECRET_FLAGS = frozenset({"api-key", "admin-api-key", "hf-token", "ssl-keyfile-password"})

# What may differ between two engines that keep the same KV: addresses, names, logs, room, pace.
INDIFFERENT_FLAGS = frozenset(
    {
        *SECRET_FLAGS,
        "api-server-count",
        "data-parallel-address",
        "data-parallel-backend",
        "data-parallel-rank",
        "data-parallel-rpc-port",
        "data-parallel-size",
        "data-parallel-size-local",
        "data-parallel-start-rank",
        "disable-log-requests",
        "disable-log-stats",
        "disable-uvicorn-access-log",
        "disaggregation-bootstrap-port",
        "disaggregation-ib-device",
        "disaggregation-mode",
        "dist-init-addr",
        "enable-log-requests",
        "enable-metrics",
        "gpu-memory-utilization",
        "headless",
        "host",
        "max-model-len",
        "max-num-batched-tokens",
        "max-num-seqs",
        "max-running-requests",
        "mem-fraction-static",
        "node-rank",
        "port",
        "served-model-name",
        "uvicorn-log-level",
    }
)

# Variables that engines read. Others are not kept, because they may hold secrets.
_KEPT_PREFIXES = ("NIXL_", "SGLANG_", "UCX_", "VLLM_")
_SECRET_WORDS = ("KEY", "PASSWORD", "SECRET", "TOKEN")
# The pod's own address and port, and what logs look like.
INDIFFERENT_VARIABLES = frozenset(
    {
        "NIXL_LOG_LEVEL",
        "SGLANG_HOST_IP",
        "UCX_LOG_LEVEL",
        "VLLM_CONFIGURE_LOGGING",
        "VLLM_HOST_IP",
        "VLLM_LOGGING_CONFIG_PATH",
        "VLLM_LOGGING_LEVEL",
        "VLLM_NIXL_SIDE_CHANNEL_HOST",
        "VLLM_NIXL_SIDE_CHANNEL_PORT",
        "VLLM_PORT",
    }
)


def is_kept(variable: str) -> bool:
    """Whether the value of a variable is kept: an engine's own, and no secret by its name."""
    return variable.startswith(_KEPT_PREFIXES) and not any(word in variable for word in _SECRET_WORDS)
