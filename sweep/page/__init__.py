"""One page per experiment, self-contained or live: what ran, what won, how it came to that."""
