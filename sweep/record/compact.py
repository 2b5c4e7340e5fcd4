"""A report as a row: what was filled in by the usual rules stands in columns, and is not repeated as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

from sweep.record.encoding import encode

_FIRST = ["timestamp", "time_this_iter_s", "pid", "hostname"]
_LAST = ["training_iteration", "time_total_s", "trial_id", "time_since_restore", "iterations_since_restore"]
_NOTHING = (None,) * 8
_USUAL = [*_FIRST, *_LAST]
_WITH_NODE = [*_FIRST, "node_ip", *_LAST]

Compact = tuple[Any, ...]


def compact(metrics: Mapping[str, Any], number: int) -> Compact:
    """Return what `sweep.record.schema` stores of a report: metrics, (hostname, node_ip), iteration, timestamp, pid,
    this_s, total_s, since_s and done; only the first where it does not follow the usual form.

    Args:
        metrics: with all that was filled in.
        number: of the attempt's reports.
    """
    keys = list(metrics)
    done = None
    if keys and keys[-1] == "done" and metrics["done"] is False:
        done = 0
        keys.pop()
    if keys[-len(_USUAL) :] == _USUAL:
        num_own, node = len(keys) - len(_USUAL), None
    elif keys[-len(_WITH_NODE) :] == _WITH_NODE:
        num_own, node = len(keys) - len(_WITH_NODE), metrics["node_ip"]
    else:
        return (encode(metrics), *_NOTHING)
    timestamp, this_s, pid, hostname = (metrics[name] for name in _FIRST)
    iteration, total_s, _, since_s, since = (metrics[name] for name in _LAST)
    if not (
        type(this_s) is type(total_s) is type(since_s) is float
        and type(timestamp) is type(pid) is type(iteration) is int
        and type(hostname) is str
        and (node is None or type(node) is str)
        and since == number
        and math.isfinite(this_s + total_s + since_s)
        and "\0" not in hostname
    ):
        return (encode(metrics), *_NOTHING)
    total = float.__repr__(total_s)
    since_text = None if since_s == total_s else float.__repr__(since_s)
    own = encode(dict(islice(metrics.items(), num_own)))
    if own[:3] == '{"$':  # keys that are no texts, or begin with `$`
        return (encode(metrics), *_NOTHING)
    return own, (hostname, node), iteration, timestamp, pid, float.__repr__(this_s), total, since_text, done
