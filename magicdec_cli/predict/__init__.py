"""`magicdec predict`: from question to page."""
