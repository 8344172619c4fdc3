"""Measures a grid of settings and writes each cell to a profile file as soon as it is done."""
