"""Copies of config files with values set."""

from __future__ import annotations

import json
import tomllib

import pytest

from sweep.errors import ConfigError
from sweep.programs.config_file import with_values


def test_yaml_keeps_its_comments_and_gets_floats_that_every_reader_takes(tmp_path):
    source, target = tmp_path / "c.yaml", tmp_path / "d.yaml"
    source.write_text("# top\nlr: 0.1 # the rate\nmodel:\n  layers: [width: 8, width: 9]\n  act: 'relu'\n")
    with_values(source, {"lr": 1e-05, "model.layers.1.width": 16, "model.act": "on"}, target)
    assert target.read_text() == (
        "# top\nlr: 1.0e-05 # the rate\nmodel:\n  layers: [width: 8, width: 16]\n  act: 'on'\n"
    )
    assert source.read_text().startswith("# top\nlr: 0.1 ")


def test_json_and_toml_are_read_back_with_the_values(tmp_path):
    data = {"lr": 0.1, "a b": {"name": "x\ny", "sizes": [1, 2], "on": True}}
    (tmp_path / "c.json").write_text(json.dumps(data))
    with_values(tmp_path / "c.json", {"a b.sizes": [3], "lr": 1e-07}, tmp_path / "d.json")
    expected = {"lr": 1e-07, "a b": {**data["a b"], "sizes": [3]}}
    assert json.loads((tmp_path / "d.json").read_text()) == expected
    (tmp_path / "c.toml").write_text('lr = 0.1\n["a b"]\nname = "x\\ny"\nsizes = [1, 2]\non = true\n')
    with_values(tmp_path / "c.toml", {"a b.sizes": [3], "lr": 1e-07}, tmp_path / "d.toml")
    assert tomllib.loads((tmp_path / "d.toml").read_text()) == expected


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("c.yaml", "lr: 0.1\n", r"no key 'lrr'\. Did you mean 'lr'"),
        ("c.yaml", "lr: [", "cannot be read"),
        ("c.yaml", "", "no key 'lrr'"),
        ("c.json", "[", "cannot be read"),
        ("c.ini", "", r"expected \.yaml, \.yml, \.json or \.toml"),
    ],
)
def test_what_cannot_be_set_is_refused(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        with_values(tmp_path / name, {"lrr": 1}, tmp_path / f"d{name[1:]}")
