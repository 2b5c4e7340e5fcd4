"""Experiments of other tools: read, and recorded as experiments of ours."""
