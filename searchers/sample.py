"""The domains and their samplers under the path at which converters of search spaces look for them."""

from __future__ import annotations

from searchers.space import (
    Categorical,
    Domain,
    Float,
    Function,
    Grid,
    Integer,
    LogUniform,
    Normal,
    Quantized,
    Sampler,
    Uniform,
)

__all__ = [
    "Categorical",
    "Domain",
    "Float",
    "Function",
    "Grid",
    "Integer",
    "LogUniform",
    "Normal",
    "Quantized",
    "Sampler",
    "Uniform",
]
