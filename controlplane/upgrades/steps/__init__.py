"""Steps of an upgrade, one module per decision; `workers.steps` registers them by name."""
