"""What a person reads when the demo is ready."""

from __future__ import annotations
