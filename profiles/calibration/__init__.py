"""Measures this machine and fits the cost model to it."""
