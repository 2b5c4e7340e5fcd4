"""What a user holds when a sweep is over, or meanwhile: trials, results, dataframes, pages of a notebook."""
