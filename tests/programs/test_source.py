"""What a script imports at its top, and whether it can run in a fork."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.errors import ConfigError
from sweep.programs.source import Source, parses_arguments


def source_of(directory: Path, text: str, **others: str) -> Source:
    """`lib_in_part` is the file `lib/part.py`."""
    for name, other in others.items():
        path = directory / f"{name.replace('_in_', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(other)
    script = directory / "train.py"
    script.write_text(text)
    return Source(script)


def test_installed_modules_are_imported_beforehand_and_those_of_its_own_directory_are_read(tmp_path: Path) -> None:
    text = "import numpy as np\nfrom model import Net\nimport nowhere\nfrom lib import part\n"
    source = source_of(
        tmp_path,
        text,
        model="from pandas import DataFrame\nclass Net: ...",
        lib_in___init__="",
        lib_in_part="from . import other\n",
        lib_in_other="import click",
    )
    assert source.imports == ("numpy", "pandas", "click")


def test_a_submodule_that_is_taken_from_a_package_is_imported_too(tmp_path: Path) -> None:
    assert source_of(tmp_path, "from numpy import linalg, array").imports == ("numpy", "numpy.linalg")


def test_imports_in_functions_and_for_types_alone_are_left_to_the_trial(tmp_path: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas\ndef f():\n    import numpy\n"
    assert source_of(tmp_path, text).imports == ("typing",)


def test_what_is_imported_after_a_variable_was_set_is_left_to_the_trial(tmp_path: Path) -> None:
    text = "import os\nos.environ['KERAS_BACKEND'] = 'jax'\nimport numpy\n"
    assert source_of(tmp_path, text).imports == ("os",)
    text = "import os\nhome = os.environ.get('HOME')\nimport numpy\n"
    assert source_of(tmp_path, text).imports == ("os", "numpy")


def test_a_script_that_starts_processes_which_print_gets_an_interpreter_of_its_own(tmp_path: Path) -> None:
    assert source_of(tmp_path, "import torch.multiprocessing as mp\nmp.spawn(f, nprocs=2)").needs_own_interpreter
    assert not source_of(tmp_path, "print('spawn')").needs_own_interpreter


def test_a_script_with_an_error_in_its_syntax_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train.py, line 1 is no Python"):
        source_of(tmp_path, "import (")
    assert source_of(tmp_path, "import model", model="import (").imports == ()


def test_a_module_of_a_package_is_followed_by_its_relative_imports(tmp_path: Path) -> None:
    source_of(tmp_path, "", lib_in_part="from . import other\n", lib_in_other="import click")
    source = Source(tmp_path / "lib" / "part.py", tmp_path)
    assert source.imports == ("click",)
    assert parses_arguments(tmp_path / "lib" / "part.py", [tmp_path])
