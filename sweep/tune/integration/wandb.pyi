# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.integration.wandb import WandbLoggerCallback as WandbLoggerCallback
from sweep.integration.wandb import setup_wandb as setup_wandb
