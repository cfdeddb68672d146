"""Faults, and what the program makes of them."""
