# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.trainable import session as session
from sweep.tune.trainable import trainable as trainable
from sweep.tune.trainable import util as util
from sweep import Trainable as Trainable
from sweep import with_parameters as with_parameters
from sweep import with_resources as with_resources
