"""Commands for a collection of sweeps: they are compared, exported, imported, deleted."""
