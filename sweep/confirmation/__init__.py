"""The best configs of an experiment, run again with other seeds and raced."""

TOP, REPEATS = 5, 16  # how many configs, and runs of each at most: benchmarks/confirm.py says how good that is
