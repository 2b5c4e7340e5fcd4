# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.schedulers import PopulationBasedTraining as PopulationBasedTraining
from sweep.schedulers import PopulationBasedTrainingReplay as PopulationBasedTrainingReplay
