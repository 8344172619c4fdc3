"""Finds plug-ins by name, and trusts those of others with nothing."""
