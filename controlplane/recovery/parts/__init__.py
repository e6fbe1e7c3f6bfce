"""What a restore does to the world, part by part. Each function is one idempotent action or look over a Task; the
steps of an operation and the rescue program call the same ones. No database."""
