"""Rollout of a DisaggregatedSet: rows, holds, drafts, hazards and the states of an operation."""
