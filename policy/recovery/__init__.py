"""Recovery combinations: states, what differs from what is there, and the order in which parts are put back."""
