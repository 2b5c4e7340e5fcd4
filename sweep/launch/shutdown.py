"""`shutdown`: let go of what this process keeps from one run to the next."""

from __future__ import annotations

from sweep.accelerators import inventory
from sweep.engines.kept import end_kept


def shutdown() -> None:
    """Forget what `init` was told, and end the process that has imported what trials need and waits for another run.

    Nothing has to be called: that process ends with this one, and after ten minutes without a run.
    """
    inventory.shutdown()
    end_kept()
