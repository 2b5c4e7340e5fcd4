"""What may be reported, value by value."""

from __future__ import annotations

import decimal
import math

import numpy as np
import pytest

from sweep.errors import UserCodeError
from sweep.worker.metrics import MAX_BYTES, MAX_KEYS, check_size, plain_metrics


def test_scalars_of_numpy_and_torch_become_python_numbers():
    import torch

    given = {"a": np.float32(1.5), "b": np.int64(3), "c": np.bool_(True), "d": torch.tensor(2.5), "e": np.array(4.0)}
    result = plain_metrics(given)
    assert result == {"a": 1.5, "b": 3, "c": True, "d": 2.5, "e": 4.0}
    assert [type(value) for value in result.values()] == [float, int, bool, float, float]


@pytest.mark.parametrize("shape", [(1,), (2, 3)])
def test_a_tensor_that_is_no_single_number_is_refused_with_its_key_and_one_that_needs_a_gradient_is_taken(shape):
    import torch

    assert plain_metrics({"loss": torch.tensor(0.5, requires_grad=True) * 2}) == {"loss": 1.0}
    says = rf"'eval/loss' is a torch Tensor of shape \({', '.join(map(str, shape))}"
    with pytest.raises(UserCodeError, match=says):
        plain_metrics({"eval": {"loss": torch.zeros(shape)}})


def test_scalars_of_jax_become_python_numbers():
    import jax.numpy as jnp

    assert plain_metrics({"a": jnp.float32(1.5)}) == {"a": 1.5}


def test_texts_none_bools_lists_and_dicts_pass_and_nan_stays():
    given = {"a": "x", "b": None, "c": [1, (2, np.float64(3))], "d": {"e": {"f": True}}, "g": math.nan, "h": -math.inf}
    result = plain_metrics(given)
    assert {**result, "g": 0} == {
        "a": "x",
        "b": None,
        "c": [1, [2, 3.0]],
        "d": {"e": {"f": True}},
        "g": 0,
        "h": -math.inf,
    }
    assert math.isnan(result["g"])


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ([1], "was given list"),
        ({1: 2}, "a reported key is 1"),
        ({"a": np.zeros(3)}, r"'a' is a numpy ndarray of shape \(3,\)"),
        ({"a": {"b": [object()]}}, r"'a/b\[0\]' is of type object"),
        ({"a": 1j}, "'a' is of type complex"),
        ({"a": decimal.Decimal(1)}, "'a' is of type Decimal"),
        ({"a": lambda: 1}, "'a' is of type function"),
        ({str(n): n for n in range(MAX_KEYS + 1)}, "1001 keys"),
        ({"many": {str(n): n for n in range(MAX_KEYS)}}, "1001 keys; 'many' alone holds 1000"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_key(metrics, says):
    with pytest.raises(UserCodeError, match=says):
        plain_metrics(metrics)


def test_as_many_keys_as_allowed_pass():
    assert len(plain_metrics({str(n): n for n in range(MAX_KEYS)})) == MAX_KEYS


def test_a_report_that_is_too_large_is_refused_with_its_size_and_its_largest_key():
    check_size({"a": 1}, MAX_BYTES)
    with pytest.raises(UserCodeError, match=r"1,048,577 bytes, most of them in 'big' \(1,002\)"):
        check_size({"a": 1, "big": "x" * 1000}, MAX_BYTES + 1)


def test_a_structure_that_contains_itself_is_refused():
    loop: dict = {}
    loop["again"] = loop
    with pytest.raises(UserCodeError, match="nested more than"):
        plain_metrics(loop)
