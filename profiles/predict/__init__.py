"""Predicts runs: settings, drafting, rows that end one after the other."""
