"""The old place of `simulation`."""

from sweep.simulation import *
