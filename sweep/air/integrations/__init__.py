"""`ray.air.integrations`: one module for each library."""
