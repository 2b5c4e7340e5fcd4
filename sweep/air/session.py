"""`ray.air.session`: what a trial asks of its session."""

from sweep.tune.session_functions import get_experiment_name as get_experiment_name, get_gpu_ids as get_gpu_ids
from sweep.tune.session_functions import get_local_rank as get_local_rank, get_node_rank as get_node_rank
from sweep.tune.session_functions import get_local_world_size as get_local_world_size
from sweep.tune.session_functions import get_world_rank as get_world_rank, get_world_size as get_world_size
from sweep.worker.session import checkpoint_dir as checkpoint_dir, get_checkpoint as get_checkpoint, report as report
from sweep.worker.session import get_trial_dir as get_trial_dir, get_trial_id as get_trial_id
from sweep.worker.session import get_trial_name as get_trial_name, get_trial_resources as get_trial_resources
from sweep.worker.session import is_session_enabled as is_session_enabled
