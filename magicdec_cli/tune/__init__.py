"""`magicdec tune`: from question to recommendation."""
