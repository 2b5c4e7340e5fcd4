"""`ray.util`, of which nothing exists here: `sweep.refusals` says what to use."""
