"""The cost model, calibration, acceptance surveys, tuning, recorded profiles and their export."""
