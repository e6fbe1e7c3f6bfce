"""A router that stands where the llm-d router stands in a disaggregated pool, held to recorded facts.

It speaks Envoy's ext_proc, reads the same configuration as strictly, follows pods, pool and objectives, draws one
revision per request during a rollout, names a prefill endpoint beside the decode endpoint, and exposes the same metric
names. What it does not play it refuses or leaves out; above all it has no queue: with the gate `flowControl` on,
requests are counted by priority and never held back.
"""
