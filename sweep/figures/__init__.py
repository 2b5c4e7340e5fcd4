"""Figures of an experiment, drawn from its record with plotly."""
