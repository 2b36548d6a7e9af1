"""Bits and layout: element formats, rounding, units in the last place, strided views. No opinions, no I/O."""
