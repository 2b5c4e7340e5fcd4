"""Sweeps in virtual time: on curves, from recorded facts, and once more from a record."""

from __future__ import annotations

from sweep.simulation.virtual import Point, Simulation, simulate

__all__ = ["Point", "Simulation", "simulate"]
