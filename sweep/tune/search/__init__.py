"""`ray.tune.search`: what proposes configs."""

from searchers import *
