"""Ports and loopback addresses that two rigs on one machine never share.

A slot is a number with a lock file; it gives ten ports, a range of ports for programs that cannot bind to their
pod's address, and one /16 of 127.0.0.0/8 for pods. The ports lie
below the range from which the system takes ports for outgoing connections, so that none is taken between
choosing and binding.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from deploy.rig.build import RigUnavailable

_FIRST_PORT = 21000
_PORTS = 10
_SLOTS = 200
_FIRST_PROGRAM_PORT = 23100
_PROGRAM_PORTS = 45


@dataclass(frozen=True)
class Slot:
    """One rig's share of the machine; ``lock`` is the descriptor that keeps it ours while it is open."""

    number: int
    lock: int

    @property
    def pod_cidr(self) -> str:
        """First pod address with its prefix, as KWOK takes it; 127.0.0.0/16 is everybody's and never used."""
        return f"127.{self.number}.0.1/16"

    def port(self, index: int) -> int:
        """The ``index``-th port of this slot, 0 to 9."""
        if not 0 <= index < _PORTS:
            raise ValueError(f"a slot has {_PORTS} ports, not one with index {index}")
        return _FIRST_PORT + self.number * _PORTS + index

    @property
    def program_ports(self) -> tuple[int, int]:
        """First and last of the local ports for programs of pods; not kept free, only nobody else's to take."""
        first = _FIRST_PROGRAM_PORT + (self.number - 1) * _PROGRAM_PORTS
        return first, first + _PROGRAM_PORTS - 1

    def release(self) -> None:
        """Give up our own hold; the keeper's copy of the descriptor may still keep the slot taken."""
        os.close(self.lock)


def take_slot() -> Slot:
    """The first free slot; RigUnavailable when all are taken."""
    folder = Path(tempfile.gettempdir()) / f"lockstep-rig-slots-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(1, _SLOTS + 1):
        lock = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        slot = Slot(number, lock)
        if all(is_free(slot.port(index)) for index in range(_PORTS)):
            return slot
        os.close(lock)
    raise RigUnavailable(f"all {_SLOTS} port ranges of the rig are taken")


def is_free(port: int, address: str = "127.0.0.1") -> bool:
    """Whether a program can bind this port of the address."""
    with socket.socket() as probe:
        # Connections in TIME_WAIT do not count: the servers set the same option.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
