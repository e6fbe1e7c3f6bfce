"""Recovery combinations: captured, kept, compared, and put back. Modules that a rescue uses touch no database."""
