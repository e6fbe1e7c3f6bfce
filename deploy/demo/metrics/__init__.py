"""A metric source for demo and tests without a Prometheus binary: it scrapes, keeps samples in memory, and answers
the part of Prometheus' HTTP API and of PromQL that Lockstep's named queries use. What it does not know it refuses.
"""
