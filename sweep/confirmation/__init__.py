"""The best configs of an experiment, run again with other seeds and raced."""
