"""What `stop=` may be, and what it means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sweep.launch.spec import StopRules


@pytest.mark.parametrize("reached", [True, np.True_])
def test_a_criterion_may_be_a_truth_of_numpy(reached: Any) -> None:
    criteria = StopRules.parse({"converged": reached}).criteria
    assert criteria == {"converged": True}
    assert type(criteria["converged"]) is bool
