"""The stoppers under the name that Tune has for their module: `from sweep.stopper import MaximumIterationStopper`."""

from sweep.core.stoppers import *  # noqa: F403
from sweep.core.stoppers import __all__ as __all__
