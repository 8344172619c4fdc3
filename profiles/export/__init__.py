"""A profile as the settings of another engine.

Acceptance depends on the text, the model and the drafter, and travels with them. Costs belong to
the machine and the engine that were measured. So a γ chosen from a profile alone is labelled as
not transferable; with the target engine's own step times it is chosen from those.

One file per format, with `render` and `check`; `registry.export` runs the one through the other.
"""
