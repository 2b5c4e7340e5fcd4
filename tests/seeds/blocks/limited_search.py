search = BayesOptSearch(utility_kwargs={"kind": "ucb", "kappa": 2.5, "xi": 0.0})
search = ConcurrencyLimiter(search, max_concurrent=4)
scheduler = AsyncHyperBandScheduler()
