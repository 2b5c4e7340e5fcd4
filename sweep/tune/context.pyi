# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep.worker.session import get_context as get_context
from sweep.worker.context import Context as _TuneContext

TuneContext = _TuneContext

