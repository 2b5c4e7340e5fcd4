"""What kinds of failure there are, and which kind an exit is."""

from __future__ import annotations

from sweep.core.messages import Exit, ExitKind

__all__ = ["CLASSES", "RETRIED", "class_of"]

CLASSES = {
    "user": "the trial's own code raised",
    "killed": "a signal ended it, or it left without a word",
    "timeout": "it ran for trial_timeout_s and did not end when it was asked to",
    "hung": "it reported nothing for report_timeout_s",
    "out_of_memory": "the machine's memory or a device's was exhausted",
    "nan": "its metric was NaN, and nan='error' was asked for",
    "start": "it ended before its code began",
    "lost": "what supervised it is gone",
}
RETRIED = tuple(name for name in CLASSES if name not in ("timeout", "nan"))
"""What is started again unless something else is asked for: the same trial would run as long, and diverge, again."""

# Exceptions that say in any framework that memory is used up: Python's, PyTorch's.
_MEMORY_ERRORS = frozenset({"MemoryError", "OutOfMemoryError"})
# JAX and TensorFlow say it in the text of an error that may mean anything else.
_MEMORY_TEXTS = ("RESOURCE_EXHAUSTED", "CUDA out of memory", "DefaultCPUAllocator: can't allocate memory")


def class_of(ended: Exit, *, has_begun: bool) -> str:
    """Return the kind of failure that an exit is, "" for one that is none.

    Args:
        has_begun: the attempt got as far as the user's code.
    """
    match ended.kind:
        case ExitKind.FINISHED:
            return ""
        case ExitKind.LOST:
            return "lost"
        case ExitKind.DAMAGED:
            return "start"
        case _ if not has_begun:
            return "start"
        case ExitKind.FAILED if _is_short_of_memory(ended):
            return "out_of_memory"
        case ExitKind.FAILED:
            return "user"
        case ExitKind.TIMEOUT | ExitKind.HUNG | ExitKind.OUT_OF_MEMORY as kind:
            return kind.value.lower()
        case _:
            return "killed"


def _is_short_of_memory(ended: Exit) -> bool:
    return ended.class_name.rpartition(".")[2] in _MEMORY_ERRORS or any(text in ended.error for text in _MEMORY_TEXTS)
