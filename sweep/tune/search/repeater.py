"""`ray.tune.search.repeater`: each config several times."""

from searchers.wrapper import TRIAL_INDEX as TRIAL_INDEX, Repeater as Repeater
