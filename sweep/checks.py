"""The checks of single arguments, with the error of this package: see `searchers.checks`."""

from __future__ import annotations

from searchers.checks import Checks, is_number, is_whole
from sweep.errors import ConfigError, ResourceError

__all__ = ["is_number", "is_whole", "mode", "number", "one_of", "refuse", "resource", "seconds", "whole"]

_checks = Checks(ConfigError)
refuse, whole, number = _checks.refuse, _checks.whole, _checks.number
seconds, one_of, mode = _checks.seconds, _checks.one_of, _checks.mode
resource = Checks(ResourceError)
"""The same checks for what a trial asks of a machine: `resource.whole(...)`."""
