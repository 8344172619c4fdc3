"""Profiles as the settings of other engines."""
