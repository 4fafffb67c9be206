"""The daemon's door: the socket, who may use it, and both ends of the talk through it."""
