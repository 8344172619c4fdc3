"""`magicdec run`: passes, report, prediction."""
