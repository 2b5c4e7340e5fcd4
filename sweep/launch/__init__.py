"""From what is asked to a sweep that runs: arguments as values, what they make, and the loop that drives it."""
