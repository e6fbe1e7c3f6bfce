"""How a start is told, and how what goes wrong in it is: the part, the problem, its log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.demo.client import ApiProblem
from deploy.demo.folder import Folder
from deploy.demo.processes import PartFailed
from deploy.rig.build import RigUnavailable
from deploy.rig.parts import RigFailed
from deploy.services import ServiceFailed


@contextmanager
def part(name: str, folder: Folder) -> Iterator[None]:
    """Say that a part starts and how long it took; give failures one shape."""
    print(f"- {name}", flush=True)
    begun = time.monotonic()
    try:
        yield
    except RigUnavailable as failed:
        raise PartFailed(name, failed.reason, folder.logs) from failed
    except RigFailed as failed:
        log = rig_log(folder, failed.part)
        raise PartFailed(f"rig: {failed.part}", failed.problem, log, failed.log) from failed
    except (ApiProblem, TimeoutError, OSError) as failed:
        raise PartFailed(name, str(failed), folder.logs) from failed
    except ServiceFailed as failed:
        problem = str(failed).replace(str(folder.data), str(folder.logs))
        raise PartFailed(name, problem, folder.logs) from failed
    print(f"  {time.monotonic() - begun:.1f} s", flush=True)


def rig_log(folder: Folder, name: str) -> Path:
    """Where the log of a part of the rig lies once the demo has ended."""
    return folder.logs / "rig" / "logs" / f"{name}.log"
