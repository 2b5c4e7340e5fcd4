"""Horovod groups: `HorovodTrainer` and `HorovodConfig`; the creator of Tune's first releases is in the integrations."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

from sweep.errors import ConfigError, refuse_unknown
from sweep.train.trainer import NOT_OF_TRAINERS, Backend, DataParallelTrainer, TrainerOptions
from sweep.worker.wire import Rank

__all__ = ["HorovodConfig", "HorovodTrainer"]

_SERVER = "horovod.runner.http.http_server"
_FRAMEWORKS = ("horovod.torch", "horovod.tensorflow", "horovod.mxnet")


@refuse_unknown()
@dataclass(frozen=True)
class HorovodConfig(Backend):
    """How the workers of a Horovod group find each other: by Horovod's own rendezvous server, on 127.0.0.1
    or, where they are on several nodes, on the address of rank 0's.

    The train loop calls `hvd.init()` itself, as under `horovodrun`. Rank 0 serves, from before the loop until every
    worker has returned, on a socket that listened before any worker was started; Horovod's own launcher would bind it
    to all interfaces of the machine.

    Attributes:
        timeout_s: seconds that Horovod's workers wait for each other, whole ones, rounded up. None:
            `HOROVOD_GLOO_TIMEOUT_SECONDS` where that is set, otherwise Horovod's own 30.

    Raises:
        ConfigError: it is no number of seconds above 0.
    """

    framework: ClassVar[str] = "horovod"
    visibility: ClassVar[str] = "share"  # scripts say torch.cuda.set_device(hvd.local_rank())
    modules: ClassVar[tuple[str, ...]] = (_SERVER,)

    timeout_s: float | None = None

    def check(self) -> None:
        """Check that Horovod is installed, without loading what it has for any framework."""
        try:
            is_there = importlib.util.find_spec(_SERVER) is not None
        except ModuleNotFoundError:
            is_there = False
        if not is_there:
            raise ConfigError(
                "a Horovod group needs Horovod with Gloo, which is not installed. It is built from its source for the "
                "framework that you train with, which must be installed already; for torch: "
                "HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 pip install horovod"
            )

    def start(self, rank: Rank) -> None:
        """Serve, in rank 0; the loop's own `hvd.init()` joins."""
        if self.timeout_s is not None:
            os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(math.ceil(self.timeout_s))
        if rank.listener >= 0:
            _serve(socket.socket(fileno=rank.listener))

    def finish(self) -> None:
        """Leave the group; the server goes on until all have."""
        for name in _FRAMEWORKS:
            hvd: Any = sys.modules.get(name)
            if hvd is not None and hvd.is_initialized():
                hvd.shutdown()


def _serve(listener: socket.socket) -> None:
    """Run Horovod's rendezvous server on a socket that listens already, for as long as this process lives."""
    module = importlib.import_module(_SERVER)
    server_class: Any = module.RendezvousHTTPServer
    handler_class: Any = module.RendezvousHandler

    class Handler(handler_class):  # type: ignore[misc]
        """Horovod's, without what it inherits: a look at the files of the current directory."""

        def do_HEAD(self) -> None:
            self.send_error(501)

    class Server(server_class):  # type: ignore[misc]
        """Horovod's, on the socket that is there."""

        daemon_threads = True

        def server_bind(self) -> None:
            vars(self)["socket"].close()  # of its own, not bound yet
            self.socket = listener
            self.server_address = listener.getsockname()
            self.server_name, self.server_port = self.server_address

        def server_activate(self) -> None:
            """Nothing: it listens."""

    # Without the list of ranks, by which it would count them: a loop may shut Horovod down and start it again.
    server = Server(listener.getsockname(), Handler, 0)
    threading.Thread(target=server.serve_forever, name="sweep-horovod-rendezvous", daemon=True).start()


@refuse_unknown(NOT_OF_TRAINERS, also=TrainerOptions.__annotations__)
class HorovodTrainer(DataParallelTrainer):
    """Run a train loop in several workers that call `hvd.init()`, as under `horovodrun`.

    Args:
        horovod_config: how they find each other.
        options: as of `DataParallelTrainer`.

    Raises:
        ConfigError: Horovod is not installed.
    """

    _default_backend = HorovodConfig()
    _backend_argument = "horovod_config"

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        horovod_config: HorovodConfig | None = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        super().__init__(train_loop_per_worker, backend_config=horovod_config, **options)
