"""KV selectors: one file each, found by file name."""
