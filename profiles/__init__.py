"""Records of runs, and the benchmark that proves the engine's speed."""
