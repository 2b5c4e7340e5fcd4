"""Where trials run: local processes, this process, or virtual time."""
