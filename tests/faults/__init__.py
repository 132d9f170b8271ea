"""Faults of real engines under a fleet that writes: `make faults`."""
