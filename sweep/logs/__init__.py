"""Log files: what the record says, written where other tools look for it."""
