"""Pure: text and values in, values out."""
