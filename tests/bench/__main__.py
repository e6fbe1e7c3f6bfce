"""`make bench`: runs every script of this folder in turn and writes what they measured to one JSON file.

    python -m tests.bench [NAME ...] [--out FILE]

A script prints one JSON object and exits with a status other than 0 when a number is missed; so does this one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUT = ROOT / ".lockstep" / "bench.json"
_LIMIT_S = 1800


def scripts() -> dict[str, Path]:
    """Benchmarks by name."""
    return {path.stem: path for path in sorted(HERE.glob("*.py")) if not path.stem.startswith("_")}


def run(path: Path) -> dict[str, Any]:
    """Run one script to its end: its status, how long it took, and its report."""
    begun = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, str(path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        status, output = -1, ""
    try:
        report = json.loads(output)
    except ValueError:
        report = {"output": output[-2000:]}
    return {"status": status, "seconds": round(time.monotonic() - begun, 1), "report": report}


def main() -> int:
    """Run the named benchmarks, or all."""
    known = scripts()
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all without one")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    results: dict[str, Any] = {}
    for name in arguments.names or known:
        print(f"{name}: ", end="", flush=True)
        results[name] = run(known[name])
        print(
            f"{'missed or failed' if results[name]['status'] else 'reached'} in {results[name]['seconds']} s",
            flush=True,
        )
        print(json.dumps(results[name]["report"], indent=2), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")
    print(f"written to {arguments.out}")
    return 1 if any(one["status"] for one in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
