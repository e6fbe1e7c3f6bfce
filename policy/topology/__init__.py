"""Where pods can stand: quantities, what pods ask for, and whether a row of a plan fits the cluster."""
