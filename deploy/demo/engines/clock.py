"""Model seconds: the time that engines live in, `scale` real seconds each."""

from __future__ import annotations

import asyncio
import time

_NOT_WORTH_IT_S = 0.0002  # real seconds below which a timer costs more than it waits


class Clock:
    """0.01 as ``scale`` makes everything a hundred times faster."""

    def __init__(self, scale: float = 1.0) -> None:
        if scale <= 0:
            raise ValueError(f"a time scale of {scale} stops time")
        self.scale = scale

    def now(self) -> float:
        """Model seconds since some start."""
        return time.monotonic() / self.scale

    async def sleep(self, seconds: float) -> None:
        """Wait so many model seconds."""
        real = seconds * self.scale
        if real >= _NOT_WORTH_IT_S:
            await asyncio.sleep(real)
