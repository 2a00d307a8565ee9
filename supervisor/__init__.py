"""The resident process of codexdrv: one a state directory, up for months, truthful."""
