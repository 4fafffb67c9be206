"""Pure: text and values in, values out. No I/O, no clock, no randomness, no logging."""
