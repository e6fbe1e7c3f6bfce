"""Log lines on standard error: JSON objects as `--zap-encoder json` asks for, else plain text."""

from __future__ import annotations

import json
import logging
import sys


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "level": record.levelname.lower(),
            "ts": round(record.created, 3),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        return json.dumps(line)


def set_up_logs(*, json_lines: bool) -> None:
    """Send records of level info and above to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(_JsonLine() if json_lines else plain)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
