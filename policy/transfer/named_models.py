"""Models whose geometry is known by their name alone: published checkpoints, told by the last part of hub id or path.

Only whole names count. A fine-tune or a distillation that has another name may have another shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from policy.transfer.models import MODELS, ModelGeometry

_NAMES: Mapping[str, str] = {
    r"(meta-)?llama-3(\.1)?-8b(-instruct)?": "llama-3-8b",
    r"(meta-)?llama-3(\.1|\.3)?-70b(-instruct)?": "llama-3-70b",
    r"(meta-)?llama-3\.1-405b(-instruct)?(-fp8)?": "llama-3.1-405b",
    r"qwen3-32b(-fp8)?": "qwen3-32b",
    r"deepseek-(v3|r1)(-0324|-0528|-base)?": "deepseek-v3",
    r"gpt-oss-120b": "gpt-oss-120b",
}
_KNOWN = {re.compile(pattern): key for pattern, key in _NAMES.items()}


def model_named(name: str) -> ModelGeometry | None:
    """The geometry of a model that is named like `meta-llama/Llama-3.1-70B-Instruct`; None where it is not known."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    return next((MODELS[key] for pattern, key in _KNOWN.items() if pattern.fullmatch(last)), None)
