"""`magicdec profile record|survey|show|compare|export`."""
