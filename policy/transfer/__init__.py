"""Moving KV caches: what engines are started with, whether two may be paired, how much moves and how long."""
