"""What exists only for scripts written for Tune, or for an earlier version: other names for what lies elsewhere."""
