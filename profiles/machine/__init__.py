"""The machine while something is measured: other programs, steadiness, time to come."""
