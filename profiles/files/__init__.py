"""Strict TOML and JSON fields, sweeps, γ schedules, writing whole files."""
