"""What drafting models see of KV caches."""
