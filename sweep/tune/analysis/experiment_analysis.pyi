# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.results.analysis import ExperimentAnalysis as ExperimentAnalysis
from sweep.results.analysis import ExperimentAnalysis as _Analysis

Analysis = _Analysis

