"""Sweeps in virtual time: on curves, from recorded facts, and once more from a record."""

from __future__ import annotations

from sweep.engines.simulator import Point
from sweep.simulation.virtual import Simulation, simulate

__all__ = ["Point", "Simulation", "simulate"]
