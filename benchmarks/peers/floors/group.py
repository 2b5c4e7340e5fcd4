"""A gloo group of two without any framework: forked from a process that has imported torch, joined, left."""

import json
import os
import socket
import statistics
import sys
import time

import torch.distributed as dist

times = []
for _ in range(int(sys.argv[2])):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    began = time.perf_counter()
    read, write = os.pipe()
    pids = []
    for rank in range(2):
        pid = os.fork()
        if pid == 0:
            os.environ.update(
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
                TORCHELASTIC_USE_AGENT_STORE="True",  # so that rank 0 does not open a second one
                GLOO_SOCKET_IFNAME="lo",
            )
            if rank == 0:
                store = dist.TCPStore(
                    "127.0.0.1",
                    port,
                    2,
                    is_master=True,
                    master_listen_fd=os.dup(listener.fileno()),
                    wait_for_workers=False,
                )
            dist.init_process_group("gloo", rank=rank, world_size=2)
            os.write(write, b"x")
            dist.destroy_process_group()
            os._exit(0)
        pids.append(pid)
    joined = 0
    while joined < 2:
        joined += len(os.read(read, 2))
    times.append(time.perf_counter() - began)
    for pid in pids:
        os.waitpid(pid, 0)
    listener.close()
    os.close(read)
    os.close(write)
print(json.dumps({"joined_s": statistics.median(times), "largest_s": max(times)}))
