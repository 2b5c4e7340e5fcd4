"""Ray Tune's names: `from sweep import tune` where a script has `from ray import tune`.

What `sweep` has is here, too, and Tune's modules are below it: `tune.schedulers`, `tune.search.optuna`, `tune.utils`.
The table is in `sweep.tune.names`; nothing is loaded before it is used.
"""

from __future__ import annotations

from sweep.tune.formerly import late_names

__getattr__, __dir__ = late_names(__name__)
