"""The contract of engines, held by agents on a cluster of Ray."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conformance.engines import NODE, EngineContract

from sweep.engines.cluster.ray import RayCluster, RayOptions

pytestmark = pytest.mark.ray


class _One(RayCluster):
    """One node of the cluster, under the name and with the amounts that the contract places its trials by."""

    def nodes(self):
        return (NODE,) if super().nodes() else ()

    def summon(self, node, invitation):
        super().summon(self._real, replace(invitation, node=node))

    def problem(self, node):
        return super().problem(self._real)

    @property
    def _real(self):
        return next(iter(self._machines.values())).name


class TestRay(EngineContract):
    @pytest.fixture(autouse=True)
    def _joined(self, joined):
        """The connection is the test's, so that each engine does not have to make one."""

    def factory(self, behaviour):
        return lambda context: _One(RayOptions(max_nodes=1))(context)
