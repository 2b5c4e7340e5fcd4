"""YAML that is malformed, no text, or that would grow beyond all bounds: one line each, with the position."""

from __future__ import annotations

from pathlib import Path

import pytest

from searchers import uniform
from sweep.cli.main import main
from sweep.cli.spec import read_spec


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "train.py").write_text("def train(config):\n    pass\n")
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return path


NINE = ", ".join(["*{}"] * 9)
BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{NINE.replace('{}', f'a{i - 1}')}]\n" for i in range(1, 12))
HEAD = "program: train.py:train\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "\tmethod: tpe\n", "2:1: not valid YAML: found a tab; YAML is indented by spaces."),
        (HEAD + "method: tpe\nmethod: gp\n", "3: method: 'method' is given twice; it is already on line 2."),
        (
            HEAD + "metric: {name: a\nrun_cap: 3\n",
            "3:8: not valid YAML: expected ',' or '}', but got ':' (while parsing",
        ),
        (HEAD + "name: a: b\n", "2:8: not valid YAML: mapping values are not allowed here."),
        (
            HEAD + "name: 'a\n",
            "3:1: not valid YAML: found unexpected end of stream (while scanning a quoted",
        ),
        (HEAD + "name: *a\n", "2:7: not valid YAML: found undefined alias 'a'."),
        (
            HEAD + "name: !!python/object:os.system x\n",
            "2:7: not valid YAML: could not determine a constructor for the tag",
        ),
        (HEAD + "---\nprogram: a\n", "2:1: not valid YAML: but found another document"),
        (
            HEAD + "base: &b {}\nparameters: {<<: *b}\n",
            "3:14: not valid YAML: found the merge key <<, which is not supported",
        ),
        (
            HEAD + f"parameters: {{x: {{value: {'1' * 5000}}}}}\n",
            "2:25: '1111111111111111111111111111111111111...'",
        ),
        ("[1, 2]\n", "1:1: expected keys such as program, method and parameters, found a list."),
        ("hello", "1:1: expected keys such as program, method and parameters, found 'hello'."),
        ("", "1:1: expected keys such as program, method and parameters, found nothing."),
        ("a: " + "[" * 60 + "]" * 60, "1:54: this is nested more than 50 deep"),
        ("a: " + "[" * 5000 + "]" * 5000, " it is nested more than 50 deep."),
        (BOMB, "1:10: there are more than 10000 values"),
        ("a: &a [*a]\n", "1:4: this is nested more than 50 deep, or holds itself."),
        (
            b"program: tr\xe4in.py:t\n",
            "1:12: not valid YAML: the byte 0xe4 is no UTF-8; expected a text file, saved as UTF-8.",
        ),
        (b"\x89PNG\r\n\x1a\n", "1:1: not valid YAML: the byte 0x89 is no UTF-8"),
        (b"a: b\nc: \0\0", "2:4: not valid YAML: the character U+0000 is not allowed; is it a text file?"),
    ],
)
def test_a_malformed_spec_is_one_line_with_its_position_and_no_traceback(tmp_path, monkeypatch, capsys, text, said):
    write(tmp_path, "")
    (tmp_path / "spec.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["run", "spec.yaml"])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("error: spec.yaml:")
    assert said in err


def test_aliases_that_stay_small_are_understood(tmp_path: Path) -> None:
    text = "parameters: {x: &v {min: 0.0, max: 1.0}, y: *v, z: *v}\nprogram: train.py:train\n"
    space = read_spec(write(tmp_path, text)).space()
    assert {name: repr(domain) for name, domain in space.items()} == dict.fromkeys("xyz", repr(uniform(0.0, 1.0)))
