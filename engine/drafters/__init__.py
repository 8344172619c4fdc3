"""Who drafts: the model itself, other models, prompt lookup, cascades and trees."""
