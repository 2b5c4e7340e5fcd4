"""`ray.tune.integration`: one module for each library."""
