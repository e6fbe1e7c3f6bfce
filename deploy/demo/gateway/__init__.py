"""The gateway of rig and demo: Envoy, configured from Gateway API objects by a small controller."""
