"""The `sweep` command: each command is a function in one of these files."""
