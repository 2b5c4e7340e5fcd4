"""`ray.train.huggingface`: the module `transformers`."""
