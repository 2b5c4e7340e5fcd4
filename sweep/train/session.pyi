# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.tune.session_functions import checkpoint_dir as checkpoint_dir
from sweep.tune.session_functions import get_checkpoint as get_checkpoint
from sweep.tune.session_functions import get_experiment_name as get_experiment_name
from sweep.tune.session_functions import get_gpu_ids as get_gpu_ids
from sweep.tune.session_functions import get_local_rank as get_local_rank
from sweep.tune.session_functions import get_local_world_size as get_local_world_size
from sweep.tune.session_functions import get_node_rank as get_node_rank
from sweep.tune.session_functions import get_trial_dir as get_trial_dir
from sweep.tune.session_functions import get_trial_id as get_trial_id
from sweep.tune.session_functions import get_trial_name as get_trial_name
from sweep.tune.session_functions import get_trial_resources as get_trial_resources
from sweep.tune.session_functions import get_world_rank as get_world_rank
from sweep.tune.session_functions import get_world_size as get_world_size
from sweep.tune.session_functions import is_session_enabled as is_session_enabled
from sweep.tune.session_functions import report as report
