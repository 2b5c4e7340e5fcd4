# Written by `python tests/stubs.py` from the table of names in sweep/tune/names.py.

from sweep import CLIReporter as CLIReporter
from sweep import JupyterNotebookReporter as JupyterNotebookReporter
from sweep import ProgressReporter as ProgressReporter
