"""One file per panel: how it looks, what it draws, and which terms its help explains."""
