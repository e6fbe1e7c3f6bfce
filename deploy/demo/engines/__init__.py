"""Simulated engines: one process answers on the address of every engine pod, as that pod's spec says it would.

What is real: HTTP on the pod's own address, metric names of vLLM, the rules by which prefill and decode refuse or
accept each other, leases, failure policies. What is simulated: the model (a keyed hash), the time things take.
"""
