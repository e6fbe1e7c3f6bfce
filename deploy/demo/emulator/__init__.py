"""A Kubernetes API over HTTP in pure Python: real rules, nothing behind it but what this process plays.

Read in this order: ``store`` (objects, versions, watches; how controllers use them), ``kinds`` and ``catalogue``
(what can be stored), ``writes`` (what happens to a write, step by step), ``server`` (the same over HTTP).
"""

from deploy.demo.emulator.emulator import Emulator as Emulator
