"""What a worker may use of its machine: threads of numeric libraries, seeds of global generators, the place in the
queue of the out-of-memory killer."""

from __future__ import annotations

import contextlib
import random
import sys
from pathlib import Path
from typing import Any

_OOM_SCORE = 500  # the kernel then prefers a trial to the driver

_pools: Any = None


def find_thread_pools() -> None:
    """Look up the thread pools of the libraries that are loaded, once, before any worker is forked: it takes 3 ms."""
    global _pools
    import threadpoolctl

    _pools = threadpoolctl.ThreadpoolController()


def limit_threads(threads: int, *, were: int = 1) -> None:
    """Give numeric libraries that are loaded already `threads` threads; those loaded later read the variables.

    Variables such as `OMP_NUM_THREADS` have no effect on a library that is loaded, hence the calls.

    Args:
        were: what they have now; nothing is done when it is the same, because the calls cost 1 ms and a thread.
    """
    if threads == were:
        return
    if _pools is None:
        find_thread_pools()
    _pools.limit(limits=threads)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)


def seed_generators(seed: int) -> None:
    """Seed the global generators of `random`, and of numpy and torch where they are loaded.

    Children of one process that imported them would otherwise all draw the same numbers. For torch the default
    generator is seeded directly: `torch.manual_seed` takes 6 ms the first time.
    """
    random.seed(seed)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed)


def offer_to_oom_killer() -> None:
    """Raise this process's score, so that the kernel ends it rather than the driver when memory runs out."""
    place = Path("/proc/self/oom_score_adj")
    with contextlib.suppress(OSError):  # a hardened /proc may refuse; the trial runs as well without it
        place.write_text(str(min(1000, int(place.read_text()) + _OOM_SCORE)))
