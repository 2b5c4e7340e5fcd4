"""Trials on several machines: an agent on each, joined by one engine; Ray places the agents."""
