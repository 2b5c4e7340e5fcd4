"""Ranges as they are typed on a command line."""

from __future__ import annotations

from typing import Any

import pytest

import searchers
from sweep.cli.ranges import parse_literal, parse_parameter, put
from sweep.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("loguniform(1e-5,1e-1)", searchers.loguniform(1e-5, 1e-1)),
        ("uniform(0, 0.5)", searchers.uniform(0, 0.5)),
        ("quniform(0,1,0.25)", searchers.quniform(0, 1, 0.25)),
        ("randint(1,6)", searchers.randint(1, 6)),
        ("qrandint(0,64,8)", searchers.qrandint(0, 64, 8)),
        ("lograndint(1,100)", searchers.lograndint(1, 100)),
        ("normal(0,1)", searchers.randn(0, 1)),
        ("16,32,64", searchers.choice([16, 32, 64])),
        ("choice(adam,sgd)", searchers.choice(["adam", "sgd"])),
        ("range(1,6)", searchers.randint(1, 6)),
        ("range(0,1,0.25)", searchers.choice([0.0, 0.25, 0.5, 0.75])),
        ("interval(0,0.5)", searchers.uniform(0, 0.5)),
        ("interval(1,5)", searchers.randint(1, 6)),
        ("tag(log,interval(1e-5,1e-1))", searchers.loguniform(1e-5, 1e-1)),
        ("tag(log, int(interval(1, 100)))", searchers.lograndint(1, 101)),
        ("int(loguniform(16,512))", searchers.lograndint(16, 512)),
        ("int(uniform(1,9))", searchers.randint(1, 9)),
        ("int(choice(1.0,2.0))", searchers.choice([1, 2])),
        ("'a,b',c", searchers.choice(["a,b", "c"])),  # no comma inside quotes and parentheses splits
        ('choice("x,y",z)', searchers.choice(["x,y", "z"])),
    ],
)
def test_every_function_means_its_domain(text: str, meant: Any) -> None:
    for typed in (f"x={text}", f"x~{text}"):  # Orion's tilde means the same
        domain = parse_parameter(typed)[1]
        assert type(domain) is type(meant)
        assert repr(domain) == repr(meant)


@pytest.mark.parametrize(
    ("text", "values"),
    [("0.1,0.01", [0.1, 0.01]), ("choice(a,b)", ["a", "b"]), ("range(1,4)", [1, 2, 3]), ("grid(1,2)", [1, 2])],
)
def test_listings_are_crossed_under_the_grid_searcher(text: str, values: list[Any]) -> None:
    assert parse_parameter(f"x={text}", is_grid=True)[1] == searchers.grid_search(values)


@pytest.mark.parametrize(
    ("word", "value"),
    [("10", 10), ("1e-3", 1e-3), ("true", True), ("null", None), ("adam", "adam"), ("'1'", "1"), ("[1, 2]", [1, 2]),
     ("-3", -3), ("a=b", "a=b"), ("", "")],
)  # fmt: skip
def test_single_words_are_values(word: str, value: Any) -> None:
    assert parse_literal(word) == value
    assert type(parse_literal(word)) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", "expected NAME=VALUE or NAME=RANGE"),
        ("lr=unifrm(0,1)", "Did you mean 'uniform'"),
        ("lr=uniform(0)", "missing a required argument: 'upper'"),
        ("lr=uniform(a,1)", "lower is 'a'; expected a"),
        ("lr=uniform(1,0)", "lr=uniform\\(1,0\\): "),
        ("lr=loguniform(0,1)", "lr=loguniform\\(0,1\\): "),
        ("lr=uniform(0,1", "not closed"),
        ("lr=uniform(0,1))", "without an opening"),
        ("lr=0.1..0.2", r"expected uniform\(0.1,0.2\)"),
        ("lr=1e-5...1e-1", r"expected uniform\(1e-5,1e-1\)"),
        ("lr=-.5..+3", r"expected uniform\(-.5,\+3\)"),
        ("n=range(5,1)", "expected 1 to 100000 steps"),
        ("n=range(1,5,0)", "expected 1 to 100000 steps"),
        ("n=range(0,1e9)", "randint and uniform are for more"),
        ("lr=tag(log,choice(1,2))", "expected tag"),
        ("lr=choice()", "at least one value"),
    ],
)
def test_a_mistake_names_the_parameter_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_parameter(text)


@pytest.mark.parametrize("text", ["a..b", "..", "1.5", "../data", "v1..", "1...", "1.2.3"])
def test_a_text_with_dots_is_itself(text: str) -> None:
    assert parse_parameter(f"path={text}") == ("path", 1.5 if text == "1.5" else text)


def test_dotted_names_nest() -> None:
    config: dict[str, Any] = {}
    put(config, "net.width", 3)
    put(config, "net.act", "relu")
    assert config == {"net": {"width": 3, "act": "relu"}}
    with pytest.raises(ConfigError, match="cannot be both"):
        put(config, "net.act.x", 1)
