"""Checks before the driver starts: evidence is gathered, and pure judges turn it into findings."""
