"""From documents to token rows, and from tokens back to text."""
