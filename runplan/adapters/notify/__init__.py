"""Notices to a person: what they say, and the channels that carry them."""
