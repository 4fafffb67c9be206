"""Works through a Markdown plan on its own, phase by phase, and lands what is proven."""

__version__ = "0.1.0"
