"""codexdrv delivers a message into a Codex thread once, and says truthfully where it stands."""

__version__ = "0.1.0"
