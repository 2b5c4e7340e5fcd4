"""What each rank of a group finds in its environment: whole tables, for the tests of the plan and of real processes."""

from __future__ import annotations

NO_GPU = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "")
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
MEETING = {
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "abcde_00001",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
NCCL = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}


def who(rank, size, *, local=None, of=None, is_virtual=False, node=0, nodes=1):
    """Return the variables that say who a rank is; `local` of `of` when that differs from `rank` of `size`."""
    local_rank = rank if local is None else local
    return {
        "SWEEP_RANK": f"{rank}",
        "RANK": f"{rank}",
        "WORLD_SIZE": f"{size}",
        "LOCAL_RANK": "0" if is_virtual else f"{local_rank}",
        "LOCAL_WORLD_SIZE": f"{of or size}",
        "NODE_RANK": f"{node}",
        "GROUP_RANK": f"{node}",
        "GROUP_WORLD_SIZE": f"{nodes}",
        "ROLE_NAME": "default",
        "ROLE_RANK": f"{rank}",
        "ROLE_WORLD_SIZE": f"{size}",
    }


def threads(number, **own):
    """Return the thread variables, with what the user has exported."""
    names = ("OMP", "OPENBLAS", "MKL", "NUMEXPR")
    others = dict.fromkeys(("VECLIB_MAXIMUM_THREADS", "LOKY_MAX_CPU_COUNT"), str(number))
    return {**{f"{name}_NUM_THREADS": str(number) for name in names}, **others, **own}


def cuda(shown):
    """Return the variables that show GPUs by index, where the parent has no list of its own."""
    by_index = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if shown.split(",")[0].isdecimal() else {}
    return {"CUDA_VISIBLE_DEVICES": shown, **by_index}


def torch(rank, size, device="cpu", **place):
    """Return everything that a torch rank on one machine has, besides threads and devices."""
    backend = NCCL if device != "cpu" else {}
    return {**who(rank, size, **place), **MEETING, **LOOPBACK, **backend, "ACCELERATE_TORCH_DEVICE": device}


def horovod(rank, size, **others):
    """Return everything that a Horovod rank on one machine has, besides who it is, threads and devices."""
    return {
        "HOROVOD_RANK": f"{rank}",
        "HOROVOD_SIZE": f"{size}",
        "HOROVOD_LOCAL_RANK": f"{rank}",
        "HOROVOD_LOCAL_SIZE": f"{size}",
        "HOROVOD_CROSS_RANK": "0",
        "HOROVOD_CROSS_SIZE": "1",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "29500",
        "HOROVOD_GLOO_IFACE": "lo",
        "HOROVOD_HOSTNAME": "localhost",
        "HOROVOD_ELASTIC": None,
        "NCCL_SOCKET_IFNAME": "lo",
        **others,
    }
