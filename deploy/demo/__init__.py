"""The whole product on one machine: servers, the rig, every process of Lockstep, a seeded set and people."""
