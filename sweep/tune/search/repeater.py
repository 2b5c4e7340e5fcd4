"""`ray.tune.search.repeater`: each config several times."""

from searchers.repeater import TRIAL_INDEX as TRIAL_INDEX, Repeater as Repeater
