"""Checkpoints on disk: stored whole or not at all, verified when read, brought elsewhere and back."""
