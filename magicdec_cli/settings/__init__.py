"""Options of all commands: the knob table, grids, and where a value comes from."""
