"""`ray.air.session`: what a trial asks of its session."""

from sweep.tune.session_functions import *
