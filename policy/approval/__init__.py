"""Who must agree to a change, who may, and how long their word holds."""
