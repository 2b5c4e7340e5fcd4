"""How a sweep is shown while it runs: on a terminal, in a notebook, line by line."""
