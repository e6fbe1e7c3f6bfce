"""How Lockstep runs: charts, the demo and the rig."""
