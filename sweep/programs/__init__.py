"""Programs that import nothing of this package, as trainables: scripts and commands, their arguments and output."""
