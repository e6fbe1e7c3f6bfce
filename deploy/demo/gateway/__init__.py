"""The gateway of rig and demo: a controller of Gateway API objects, and Envoy or a small proxy that serves them."""
