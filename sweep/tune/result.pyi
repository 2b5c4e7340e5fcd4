# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.result_fields import CONFIG_PREFIX as CONFIG_PREFIX
from sweep.tune.result_fields import DEFAULT_METRIC as DEFAULT_METRIC
from sweep.tune.result_fields import DONE as DONE
from sweep.tune.result_fields import EXPERIMENT_TAG as EXPERIMENT_TAG
from sweep.tune.result_fields import HOSTNAME as HOSTNAME
from sweep.tune.result_fields import NODE_IP as NODE_IP
from sweep.tune.result_fields import PID as PID
from sweep.tune.result_fields import SHOULD_CHECKPOINT as SHOULD_CHECKPOINT
from sweep.tune.result_fields import TIMESTAMP as TIMESTAMP
from sweep.tune.result_fields import TIMESTEPS_THIS_ITER as TIMESTEPS_THIS_ITER
from sweep.tune.result_fields import TIMESTEPS_TOTAL as TIMESTEPS_TOTAL
from sweep.tune.result_fields import TIME_THIS_ITER_S as TIME_THIS_ITER_S
from sweep.tune.result_fields import TIME_TOTAL_S as TIME_TOTAL_S
from sweep.tune.result_fields import TRAINING_ITERATION as TRAINING_ITERATION
from sweep.tune.result_fields import TRIAL_ID as TRIAL_ID
