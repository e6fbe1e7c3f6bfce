"""Deciding: pure Python. Facts, time and seeds are arguments; verdicts with reasons come back."""
