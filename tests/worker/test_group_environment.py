"""The environment of every rank of a group: whole tables, so that a variable too many is noticed as well."""

from __future__ import annotations

import json

import pytest
from rank_variables import LOOPBACK, MEETING, NCCL, NO_GPU, cuda, horovod, threads, torch, who

from sweep.core.resources import Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.errors import ConfigError
from sweep.worker.group_environment import GroupSpec, group_job, plan_ranks
from sweep.worker.wire import Job, Rank

PORT = 29500
GPU, CPU = Bundle(cpu=1.0, gpu=1.0), Bundle(cpu=1.0)

TORCH, JAX = GroupSpec("torch", visibility="share"), GroupSpec("jax")
PLAIN = GroupSpec()  # the ranks find each other by themselves


def node(*visible, name="n", kind="gpu", **values):
    """Return a node with one device for each entry; its ids differ from what the variables must hold."""
    return Node(name, devices=tuple(Device(f"id-{entry}", kind, visible=str(entry), **values) for entry in visible))


def on(*visible, share=1.0, name="n"):
    """Return where a bundle lies."""
    return BundlePlacement(name, tuple((f"id-{entry}", share) for entry in visible))


def plan(bundle, places, spec, *, nodes, environ=None, ports=(PORT,), attempt=1, **request):
    """Return the plans of a group whose bundles are all equal, or given one by one."""
    bundles = bundle if isinstance(bundle, tuple) else (bundle,) * len(places)
    return plan_ranks(
        Resources(bundles, **request),
        Placement(tuple(places)),
        spec,
        nodes=nodes,
        environ=environ or {},
        trial_id="abcde_00001",
        attempt=attempt,
        ports=ports,
    )


def without_gpu(values):
    """Return variables that hide all GPUs of every vendor, less those that do."""
    assert {name: values.get(name) for name in NO_GPU} == NO_GPU
    return {name: value for name, value in values.items() if name not in NO_GPU}


def variables(plans):
    """Return what each rank is given; of ranks without a GPU, which are told so, the rest."""
    every = [dict(one.variables) for one in plans]
    return [without_gpu(one) if one.get("ROCR_VISIBLE_DEVICES") == "" else one for one in every]


WHOLE_HOST = {"TPU_VISIBLE_CHIPS": None, "TPU_CHIPS_PER_HOST_BOUNDS": None, "TPU_HOST_BOUNDS": None}


def chips(shown, bounds):
    """Return the variables that show a part of a host."""
    return {"TPU_VISIBLE_CHIPS": shown, "TPU_CHIPS_PER_HOST_BOUNDS": bounds, "TPU_HOST_BOUNDS": "1,1,1"}


def test_two_torch_workers_on_cpus_written_out():
    first, second = plan(CPU, [on(), on()], TORCH, nodes=[Node("n")])
    same = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "0",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "abcde_00001",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "ACCELERATE_TORCH_DEVICE": "cpu",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "TP_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "NUMEXPR_NUM_THREADS": "1",
        "VECLIB_MAXIMUM_THREADS": "1",
        "LOKY_MAX_CPU_COUNT": "1",
    }
    assert variables([first])[0] == {**same, "SWEEP_RANK": "0", "RANK": "0", "LOCAL_RANK": "0", "ROLE_RANK": "0"}
    assert variables([second])[0] == {**same, "SWEEP_RANK": "1", "RANK": "1", "LOCAL_RANK": "1", "ROLE_RANK": "1"}
    assert [one.rank for one in (first, second)] == [
        Rank(0, 2, local_rank=0, local_size=2, port=PORT, backend="gloo"),
        Rank(1, 2, local_rank=1, local_size=2, port=PORT, backend="gloo"),
    ]
    assert [one.num_threads for one in (first, second)] == [1, 1]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (PLAIN, {}),
        (JAX, {"JAX_PLATFORMS": "cpu"}),
        (TORCH, {**MEETING, **LOOPBACK, "ACCELERATE_TORCH_DEVICE": "cpu"}),
    ],
)
def test_a_worker_alone_is_told_that_it_is_alone_and_what_its_framework_needs(spec, expected):
    (only,) = plan(CPU, [on()], spec, nodes=[Node("n")])
    assert variables([only])[0] == {**who(0, 1), **threads(1), **expected}


def test_later_attempts_are_counted_as_restarts():
    plans = plan(CPU, [on(), on()], TORCH, nodes=[Node("n")], attempt=3)
    assert [one.variables["TORCHELASTIC_RESTART_COUNT"] for one in plans] == ["2", "2"]


@pytest.mark.parametrize(
    ("own", "given", "counts"),
    [
        ({}, [threads(2), threads(8)], [2, 8]),
        # The user's own number counts for every library.
        ({"OMP_NUM_THREADS": "3,2"}, [threads(3, OMP_NUM_THREADS="3,2")] * 2, [3, 3]),
        ({"OMP_NUM_THREADS": "many"}, [threads(cpus, OMP_NUM_THREADS="many") for cpus in (2, 8)], [2, 8]),
    ],
)
@pytest.mark.parametrize("is_exported", [True, False])
def test_threads_are_the_cpus_of_the_workers_bundle_unless_the_user_has_said(own, given, counts, is_exported):
    spec, environ = (PLAIN, own) if is_exported else (GroupSpec(env=own), {})
    plans = plan((Bundle(cpu=2.7), Bundle(cpu=8.0)), [on(), on()], spec, nodes=[Node("n")], environ=environ)
    assert variables(plans) == [{**who(rank, 2), **given[rank]} for rank in range(2)]
    assert [one.num_threads for one in plans] == counts


@pytest.mark.parametrize(
    ("own", "visibility", "expected"),
    [  # for each worker: what it sees, LOCAL_RANK, the device that it should use, positions of all its own
        ([(0,), (1,)], "share", [("0,1", "0", "cuda:0", (0,)), ("0,1", "1", "cuda:1", (1,))]),
        ([(0,), (1,)], "isolate", [("0", "0", "cuda:0", (0,)), ("1", "0", "cuda:0", (0,))]),
        ([(0, 1), (2, 3)], "share", [("0,1,2,3", "0", "cuda:0", (0, 1)), ("0,1,2,3", "1", "cuda:2", (2, 3))]),
        ([(0, 1), (2, 3)], "isolate", [("0,1", "0", "cuda:0", (0, 1)), ("2,3", "0", "cuda:0", (0, 1))]),
        ([(2,), (5,)], "share", [("2,5", "0", "cuda:0", (0,)), ("2,5", "1", "cuda:1", (1,))]),
        ([(2,), (5,)], "isolate", [("2", "0", "cuda:0", (0,)), ("5", "0", "cuda:0", (0,))]),
        # Not in the order of the bundles but in that of the devices, or `cuda:LOCAL_RANK` were another's.
        ([(5,), (2,)], "share", [("2,5", "0", "cuda:0", (0,)), ("2,5", "1", "cuda:1", (1,))]),
        ([(0, 2), (1, 3)], "share", [("0,2,1,3", "0", "cuda:0", (0, 1)), ("0,2,1,3", "1", "cuda:2", (2, 3))]),
    ],
)
def test_torch_workers_share_or_keep_their_gpus_and_know_their_own(own, visibility, expected):
    bundle = Bundle(cpu=1.0, gpu=float(len(own[0])))
    plans = plan(bundle, [on(*ids) for ids in own], GroupSpec("torch", visibility=visibility), nodes=[node(*range(8))])
    assert variables(plans) == [
        {**torch(rank, 2, device), "LOCAL_RANK": local, **threads(1), **cuda(shown)}
        for rank, (shown, local, device, _) in enumerate(expected)
    ]
    assert [one.rank for one in plans] == [
        Rank(rank, 2, local_rank=rank, local_size=2, devices=positions, port=PORT, backend="nccl")
        for rank, (_, _, _, positions) in enumerate(expected)
    ]


@pytest.mark.parametrize(
    ("spec", "extra"), [(JAX, {"JAX_PLATFORMS": "cuda"}), (PLAIN, {})], ids=["jax", "no framework"]
)
def test_workers_of_other_frameworks_see_their_own_gpus_only(spec, extra):
    plans = plan(GPU, [on(3), on(4)], spec, nodes=[node(*range(8))])
    assert variables(plans) == [
        {**who(rank, 2, is_virtual=True), **threads(1), **cuda(shown), **extra} for rank, shown in enumerate(("3", "4"))
    ]


def test_of_more_than_ten_gpus_the_order_is_that_of_numbers_and_local_rank_is_the_own_device():
    places = [on(10), on(2), on(11), on(1), on(9)]
    plans = plan(GPU, places, TORCH, nodes=[node(*range(12))])
    assert variables(plans) == [
        {**torch(rank, 5, f"cuda:{rank}"), **threads(1), **cuda("1,2,9,10,11")} for rank in range(5)
    ]
    assert [one.rank.devices for one in plans] == [(0,), (1,), (2,), (3,), (4,)]


def test_workers_on_a_node_without_gpus_are_not_told_of_those_of_another():
    (only,) = plan(CPU, [on(name="m")], PLAIN, nodes=[node(0, 1), Node("m")])
    assert variables([only])[0] == {**who(0, 1), **threads(1)}


HALF = Bundle(cpu=1.0, gpu=0.5)
A_PART = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45"}


@pytest.mark.parametrize(("request_of", "backend"), [("distinct_devices", "nccl"), ("shared_devices", "gloo")])
def test_halves_of_two_gpus_are_a_device_of_its_own_for_each_worker(request_of, backend):
    plans = plan(HALF, [on(0, share=0.5), on(1, share=0.5)], TORCH, nodes=[node(0, 1)], **{request_of: True})
    table = {**threads(1), **cuda("0,1"), **A_PART}
    has = [{**torch(rank, 2, f"cuda:{rank}"), **table} for rank in range(2)]
    if backend == "gloo":
        has = [{name: value for name, value in one.items() if name not in NCCL} for one in has]
    assert variables(plans) == has
    assert [(one.rank.backend, one.rank.devices) for one in plans] == [(backend, (0,)), (backend, (1,))]


@pytest.mark.parametrize("backend", ["", "gloo", "cpu:gloo,cuda:gloo"])
@pytest.mark.parametrize("visibility", ["share", "isolate"])
def test_workers_that_share_a_gpu_talk_by_gloo_and_use_the_same_device(visibility, backend):
    places = [on(1, share=0.5), on(1, share=0.5)]
    spec = GroupSpec("torch", backend, visibility=visibility)
    plans = plan(HALF, places, spec, nodes=[node(0, 1)])
    is_virtual = visibility == "isolate"
    expected = []
    for rank in range(2):
        has = {**torch(rank, 2, "cuda:0", is_virtual=is_virtual), **threads(1), **cuda("1"), **A_PART}
        del has["TORCH_NCCL_ASYNC_ERROR_HANDLING"]  # of a library that is not used
        expected.append(has)
    assert variables(plans) == expected
    assert [one.rank for one in plans] == [
        Rank(rank, 2, local_rank=rank, local_size=2, devices=(0,), port=PORT, backend=backend or "gloo")
        for rank in range(2)
    ]


def test_four_halves_on_two_gpus_are_grouped_by_device():
    places = [on(one, share=0.5) for one in (1, 0, 1, 0)]
    plans = plan(HALF, places, TORCH, nodes=[node(0, 1)])
    assert [one.rank.devices for one in plans] == [(0,), (0,), (1,), (1,)]
    assert [one.variables["ACCELERATE_TORCH_DEVICE"] for one in plans] == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_nccl_is_refused_where_workers_share_a_gpu(backend):
    with pytest.raises(ConfigError, match=f"backend='{backend}', but .* share a GPU, which NCCL refuses"):
        plan(HALF, [on(0, share=0.5)] * 2, GroupSpec("torch", backend), nodes=[node(0)])


@pytest.mark.parametrize("backend", ["", "nccl"])
def test_one_worker_with_a_part_of_a_gpu_may_use_nccl_also_beside_a_head_on_the_same_gpu(backend):
    spec = GroupSpec("torch", backend, visibility="share", has_head=True)
    plans = plan((Bundle(gpu=0.5), HALF), [on(0, share=0.5)] * 2, spec, nodes=[node(0)])
    assert variables(plans) == [{**torch(0, 1, "cuda:0"), **threads(1), **cuda("0"), **A_PART}]


AMD = [node(*range(4), vendor="amd")]


@pytest.mark.parametrize(
    ("spec", "environ", "expected"),
    [
        (TORCH, {}, [torch(0, 2, "cuda:0"), torch(1, 2, "cuda:1")]),
        (JAX, {}, [{**who(rank, 2, is_virtual=True), "JAX_PLATFORMS": "rocm"} for rank in range(2)]),
        (JAX, {"JAX_PLATFORMS": "gpu"}, [who(rank, 2, is_virtual=True) for rank in range(2)]),
    ],
)
def test_amd_gpus_have_their_own_variable_and_no_order_of_cudas(spec, environ, expected):
    plans = plan(GPU, [on(1), on(3)], spec, nodes=AMD, environ=environ)
    shown = ["1,3", "1,3"] if spec is TORCH else ["1", "3"]
    assert variables(plans) == [
        {**own, **threads(1), "HIP_VISIBLE_DEVICES": seen} for own, seen in zip(expected, shown, strict=True)
    ]


_GPU_TORCH = {**torch(0, 1, "cuda:0"), **threads(1), **cuda("0")}
_GPU_JAX = {**who(0, 1, is_virtual=True), **threads(1), **cuda("0"), **A_PART, "JAX_PLATFORMS": "cuda"}


@pytest.mark.parametrize(
    ("spec", "name", "value", "is_default"),
    [
        (TORCH, "GLOO_SOCKET_IFNAME", "ens5", True),
        (TORCH, "NCCL_SOCKET_IFNAME", "ens5", True),
        (TORCH, "TP_SOCKET_IFNAME", "ens5", True),
        (TORCH, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", True),
        (TORCH, "ACCELERATE_TORCH_DEVICE", "cpu", True),
        (TORCH, "CUDA_DEVICE_ORDER", "FASTEST_FIRST", True),
        (TORCH, "NCCL_DEBUG", "INFO", False),
        (JAX, "JAX_PLATFORMS", "cpu", True),
        (JAX, "XLA_PYTHON_CLIENT_MEM_FRACTION", ".3", True),
    ],
)
def test_what_the_user_has_set_takes_the_place_of_a_default(spec, name, value, is_default):
    share, base = (1.0, _GPU_TORCH) if spec is TORCH else (0.5, _GPU_JAX)
    assert (name in base) is is_default
    bundle, place, rest = Bundle(cpu=1.0, gpu=share), on(0, share=share), {k: v for k, v in base.items() if k != name}
    # Exported where the driver was started: the process has it already, and it is left alone.
    plans = plan(bundle, [place], spec, nodes=[node(0)], environ={name: value})
    assert variables(plans) == [rest]
    # By RunConfig(runtime_env=...): it is given to the process.
    own = GroupSpec(spec.framework, visibility=spec.visibility, env={name: value})
    plans = plan(bundle, [place], own, nodes=[node(0)])
    assert variables(plans) == [{**rest, name: value}]
    # The nearer one wins.
    plans = plan(bundle, [place], own, nodes=[node(0)], environ={name: "another"})
    assert variables(plans) == [{**rest, name: value}]


def test_with_blocking_waits_of_the_users_own_nccl_is_not_told_another_way_to_notice_failures():
    plans = plan(GPU, [on(0)], TORCH, nodes=[node(0)], environ={"TORCH_NCCL_BLOCKING_WAIT": "1"})
    assert variables(plans) == [{name: value for name, value in _GPU_TORCH.items() if name not in NCCL}]


@pytest.mark.parametrize("is_exported", [True, False])
def test_who_a_rank_is_and_where_it_meets_the_others_is_nobodys_to_set(is_exported):
    own = dict.fromkeys((*who(0, 2), *MEETING), "7")
    spec = TORCH if is_exported else GroupSpec("torch", visibility="share", env=own)
    plans = plan(CPU, [on(), on()], spec, nodes=[Node("n")], environ=own if is_exported else {})
    assert variables(plans) == [{**torch(rank, 2), **threads(1)} for rank in range(2)]


@pytest.mark.parametrize("visibility", ["share", "isolate"])
@pytest.mark.parametrize("is_exported", [True, False])
def test_people_who_hand_out_devices_themselves_see_all_and_are_told_which_were_meant(is_exported, visibility):
    keep = {"SWEEP_KEEP_VISIBLE_DEVICES": "1"}
    spec = GroupSpec("torch", visibility=visibility, env={} if is_exported else keep)
    plans = plan(GPU, [on(6), on(5)], spec, nodes=[node(4, 5, 6)], environ=keep if is_exported else {})
    given = {} if is_exported else keep
    assert variables(plans) == [{**torch(rank, 2, f"cuda:{rank + 1}"), **threads(1), **given} for rank in range(2)]
    assert [one.rank.devices for one in plans] == [(1,), (2,)]


def host(number, name="n"):
    return node(*range(number), name=name, kind="tpu")


@pytest.mark.parametrize(
    ("own", "expected"), [((2, 3), chips("2,3", "1,2,1")), ((0, 1, 2, 3), WHOLE_HOST)], ids=["part", "all"]
)
def test_a_worker_sees_its_chips_with_the_bounds_that_they_have(own, expected):
    (only,) = plan(Bundle(cpu=1.0, tpu=float(len(own))), [on(*own)], JAX, nodes=[host(4)])
    assert variables([only])[0] == {**who(0, 1), **threads(1), **expected, "JAX_PLATFORMS": "tpu"}
    assert only.rank == Rank(0, 1, num_tpus=len(own), port=PORT)


def test_workers_of_one_host_have_their_own_chips_in_the_order_of_the_chips():
    plans = plan(Bundle(tpu=2.0), [on(2, 3), on(0, 1)], JAX, nodes=[host(4)])
    same = {**threads(1), "JAX_PLATFORMS": "tpu"}
    assert variables(plans) == [
        {**who(0, 2), **same, **chips("0,1", "1,2,1")},
        {**who(1, 2), **same, **chips("2,3", "1,2,1")},
    ]


HOSTS = [Node(f"h{i}", devices=host(4).devices, slice="s") for i in range(4)]
SLICE = GroupSpec("jax", workers_per_slice=4)


def one_of(rank, size, **place):
    """Return what a jax worker has that has a host of 4 chips to itself."""
    return {
        **who(rank, size, local=0, of=1, node=rank, nodes=size),
        **threads(1),
        **WHOLE_HOST,
        "JAX_PLATFORMS": "tpu",
        **place,
    }


def of_two_slices(number, address=None):
    """Return what says that a worker is in one of two slices, whose first worker is at an address."""
    told = {"MEGASCALE_PORT": "8081", "MEGASCALE_NUM_SLICES": "2", "MEGASCALE_SLICE_ID": f"{number}"}
    return told if address is None else {**told, "MEGASCALE_COORDINATOR_ADDRESS": address}


def test_a_slice_of_four_hosts_has_a_worker_on_each_that_knows_the_others():
    places = [on(*range(4), name=f"h{i}") for i in range(4)]
    plans = plan(Bundle(cpu=1.0, tpu=4.0), places, SLICE, nodes=HOSTS, bundles_per_slice=4)
    assert variables(plans) == [
        one_of(rank, 4, TPU_WORKER_ID=f"{rank}", TPU_WORKER_HOSTNAMES="h0,h1,h2,h3") for rank in range(4)
    ]
    assert [one.rank for one in plans] == [
        Rank(rank, 4, 0, 1, node_rank=rank, num_nodes=4, num_tpus=4, port=PORT) for rank in range(4)
    ]


def test_two_slices_are_contiguous_in_rank_and_are_told_which_they_are():
    nodes = [Node(f"{name}{i}", devices=host(4).devices, slice=name) for i in range(4) for name in ("a", "b")]
    places = [on(*range(4), name=f"{name}{i}") for name in ("b", "a") for i in range(4)]
    plans = plan(Bundle(cpu=1.0, tpu=4.0), places, SLICE, nodes=nodes, bundles_per_slice=4)
    expected = [
        {
            **one_of(rank, 8, **of_two_slices(rank // 4, "127.0.0.1")),
            "TPU_WORKER_ID": f"{rank % 4}",
            "TPU_WORKER_HOSTNAMES": "b0,b1,b2,b3" if rank < 4 else "a0,a1,a2,a3",
        }
        for rank in range(8)
    ]
    assert variables(plans) == expected


def test_two_workers_on_each_host_of_a_slice_are_neighbours():
    # Eight workers of 2 chips fill a 4x4; the bundles went round the hosts.
    places = [on(*pair, name=f"h{i}") for pair in ((0, 1), (2, 3)) for i in range(4)]
    spec = GroupSpec("jax", workers_per_slice=8)
    plans = plan(Bundle(cpu=1.0, tpu=2.0), places, spec, nodes=HOSTS, bundles_per_slice=8)
    assert variables(plans) == [
        {
            **who(rank, 8, local=rank % 2, of=2, node=rank // 2, nodes=4),
            **threads(1),
            **chips("2,3" if rank % 2 else "0,1", "1,2,1"),
            "JAX_PLATFORMS": "tpu",
            "TPU_WORKER_ID": f"{rank // 2}",
            "TPU_WORKER_HOSTNAMES": "h0,h1,h2,h3",
        }
        for rank in range(8)
    ]


def test_two_slices_of_one_host_each_need_no_names_of_hosts():
    nodes = [Node(f"h{i}", devices=host(8).devices, slice=f"s{i}") for i in range(2)]
    places = [on(*range(8), name=f"h{i}") for i in range(2)]
    spec = GroupSpec("jax", workers_per_slice=1)
    plans = plan(Bundle(cpu=1.0, tpu=8.0), places, spec, nodes=nodes, bundles_per_slice=1)
    assert variables(plans) == [one_of(rank, 2, **of_two_slices(rank, "127.0.0.1")) for rank in range(2)]


def test_variables_of_slices_that_the_user_has_set_stay():
    nodes = [Node(f"{name}{i}", devices=host(4).devices, slice=name) for name in ("a", "b") for i in range(4)]
    places = [on(*range(4), name=one.id) for one in nodes]
    own = {"MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.2", "TPU_WORKER_HOSTNAMES": "localhost", "JAX_PLATFORMS": "tpu,cpu"}
    plans = plan(Bundle(cpu=1.0, tpu=4.0), places, SLICE, nodes=nodes, bundles_per_slice=4, environ=own)
    expected = [one_of(rank, 8, **of_two_slices(rank // 4), TPU_WORKER_ID=f"{rank % 4}") for rank in range(8)]
    for one in expected:
        del one["JAX_PLATFORMS"]
    assert variables(plans) == expected


HOROVOD = GroupSpec("horovod", visibility="share")


def test_horovods_ranks_are_told_what_horovodrun_would_tell_them():
    own = {"NCCL_SOCKET_IFNAME": "eth0", "HOROVOD_GLOO_IFACE": "eth0", "HOROVOD_SIZE": "7"}
    plans = plan(CPU, [on(), on()], HOROVOD, nodes=[Node("n")])
    assert variables(plans) == [{**who(rank, 2), **horovod(rank, 2), **threads(1)} for rank in range(2)]
    assert [one.rank.port for one in plans] == [PORT, PORT]
    plans = plan(CPU, [on()], HOROVOD, nodes=[Node("n")], environ=own)
    expected = {**who(0, 1), **horovod(0, 1), **threads(1)}
    del expected["NCCL_SOCKET_IFNAME"]  # the user's own stays
    assert variables(plans) == [expected]


@pytest.mark.parametrize(("visibility", "shown"), [("share", ["0,1", "0,1"]), ("isolate", ["0", "1"])])
def test_horovods_local_ranks_count_whatever_gpus_are_seen(visibility, shown):
    plans = plan(GPU, [on(0), on(1)], GroupSpec("horovod", visibility=visibility), nodes=[node(0, 1)])
    assert variables(plans) == [
        {
            **who(rank, 2, is_virtual=visibility == "isolate"),
            **horovod(rank, 2),
            **threads(1),
            **cuda(shown[rank]),
        }
        for rank in range(2)
    ]


def test_horovods_ranks_with_one_local_rank_are_counted_across_the_nodes_that_have_it():
    names = ("a", "a", "b", "c", "c", "c")
    nodes = [Node(name) for name in "abc"]
    told = variables(plan(CPU, [on(name=name) for name in names], HOROVOD, nodes=nodes))
    keys = [f"HOROVOD_{key}" for key in ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")]
    assert [[one[key] for key in keys] for one in told] == [
        ["0", "2", "0", "3"],
        ["1", "2", "0", "2"],
        ["0", "1", "1", "3"],
        ["0", "3", "2", "3"],
        ["1", "3", "1", "2"],
        ["2", "3", "0", "1"],
    ]
    assert [one["HOROVOD_HOSTNAME"] for one in told] == [f"localhost-{i}" for i in (0, 0, 1, 2, 2, 2)]


def test_a_head_is_no_rank_and_its_gpu_is_nobodys():
    spec = GroupSpec("torch", visibility="share", has_head=True)
    places = [on(0), on(1), on(2)]
    plans = plan((Bundle(cpu=4.0, gpu=1.0), GPU, GPU), places, spec, nodes=[node(*range(4))])
    assert variables(plans) == [{**torch(rank, 2, f"cuda:{rank}"), **threads(1), **cuda("1,2")} for rank in range(2)]
    # A head with a GPU makes no GPU group of workers on CPUs.
    plans = plan((Bundle(gpu=1.0), CPU, CPU), [on(0), on(), on()], spec, nodes=[node(0)])
    assert variables(plans) == [{**torch(rank, 2), **threads(1)} for rank in range(2)]


def test_workers_of_slices_are_counted_without_the_head():
    spec = GroupSpec("jax", has_head=True, workers_per_slice=2)
    nodes = [*HOSTS, Node("head")]
    names = ["head", "h3", "h2", "h1", "h0"]
    places = [on(*(range(4) if name != "head" else ()), name=name) for name in names]
    bundles = (CPU, *(Bundle(cpu=1.0, tpu=4.0),) * 4)
    plans = plan(bundles, places, spec, nodes=nodes, bundles_per_slice=2)
    assert [one.variables["MEGASCALE_SLICE_ID"] for one in plans] == ["0", "0", "1", "1"]
    assert [one.variables["TPU_WORKER_HOSTNAMES"] for one in plans] == ["h3,h2", "h3,h2", "h1,h0", "h1,h0"]
    assert [one.variables["MEGASCALE_COORDINATOR_ADDRESS"] for one in plans] == ["127.0.0.1"] * 4


@pytest.mark.parametrize(
    ("visibility", "shown", "devices", "is_virtual"),
    [
        ("share", ["0,1", "0,1", "0,1"], [(0,), (1,), (0,)], False),
        ("isolate", ["0", "1", "0"], [(0,), (0,), (0,)], True),
    ],
)
def test_bundles_that_were_placed_round_the_nodes_are_grouped_by_node(visibility, shown, devices, is_virtual):
    nodes = [node(0, 1, name="m"), node(0, 1, name="n")]
    places = [on(1, name="n"), on(0, name="m"), on(0, name="n"), on(1, name="m")]
    plans = plan(GPU, places, GroupSpec("torch", visibility=visibility), nodes=nodes)
    expected = []
    for rank in range(4):
        own = "cuda:0" if is_virtual else f"cuda:{rank % 2}"
        place = {"local": rank % 2, "of": 2, "node": rank // 2, "nodes": 2, "is_virtual": is_virtual}
        seen = cuda(shown[rank % 2])
        expected.append({**torch(rank, 4, own, **place), **threads(1), **seen})
    assert variables(plans) == expected
    assert [one.rank for one in plans] == [
        Rank(rank, 4, rank % 2, 2, rank // 2, 2, devices[rank % 2], port=PORT, backend="nccl") for rank in range(4)
    ]


def test_workers_without_devices_are_grouped_by_node_in_the_order_of_their_bundles():
    places = [on(name=name) for name in ("b", "a", "b", "c", "a")]
    bundles = tuple(Bundle(cpu=float(number)) for number in range(1, 6))
    plans = plan(bundles, places, PLAIN, nodes=[Node(name) for name in ("a", "b", "c")])
    where = [(0, 2, 0), (1, 2, 0), (0, 2, 1), (1, 2, 1), (0, 1, 2)]
    assert variables(plans) == [
        {**who(rank, 5, local=local, of=of, node=number, nodes=3), **threads(cpus)}
        for rank, ((local, of, number), cpus) in enumerate(zip(where, (1, 3, 2, 5, 4), strict=True))
    ]


# --- several machines ------------------------------------------------------------------------------------------------

FAR = [
    Node("m", devices=node(0, 1).devices, address="10.0.0.1"),
    Node("n", devices=node(0).devices, address="10.0.0.2"),
]
ROUND = [on(0, name="m"), on(0, name="n"), on(1, name="m")]


def plan_far(spec, places=ROUND, **more):
    """Return the plans of a group on two machines, as the second computes them."""
    request = Resources((Bundle(cpu=1.0, gpu=1.0),) * len(places))
    more = {"nodes": FAR, "environ": {}, "ports": {"m": (PORT,)}, "interface": "eth1", **more}
    return plan_ranks(request, Placement(tuple(places)), spec, trial_id="abcde_00001", attempt=1, **more)


def test_torch_workers_on_two_machines_meet_at_rank_0s_address_over_the_interface_of_their_own():
    far = {"MASTER_ADDR": "10.0.0.1", **dict.fromkeys(LOOPBACK, "eth1")}
    plans = plan_far(TORCH)
    assert variables(plans) == [
        {
            **torch(rank, 3, f"cuda:{local}", local=local, of=of, node=number, nodes=2),
            **far,
            **threads(1),
            **cuda(shown),
        }
        for rank, (local, of, number, shown) in enumerate([(0, 2, 0, "0,1"), (1, 2, 0, "0,1"), (0, 1, 1, "0")])
    ]
    assert [(one.rank.address, one.rank.port) for one in plans] == [("10.0.0.1", PORT)] * 3
    assert [one.node for one in plans] == ["m", "m", "n"]


@pytest.mark.parametrize("spec", [TORCH, JAX, HOROVOD])
def test_rank_0_is_at_the_address_of_its_own_node(spec):
    plans = plan_far(spec, [on(0, name="n"), on(0, name="m")], ports={"n": (PORT,)})
    assert [(one.rank.address, one.rank.port) for one in plans] == [("10.0.0.2", PORT)] * 2


def test_a_group_on_one_of_several_machines_stays_on_loopback():
    plans = plan_far(TORCH, [on(0, name="m"), on(1, name="m")], ports=(PORT,))
    assert [dict(one.variables)["MASTER_ADDR"] for one in plans] == ["127.0.0.1"] * 2
    assert [dict(one.variables)["GLOO_SOCKET_IFNAME"] for one in plans] == ["lo"] * 2
    assert plans[0].rank.address == "127.0.0.1"


def test_the_interface_is_the_users_own_where_that_is_set_and_nobodys_where_none_bears_the_address():
    has = plan_far(TORCH, environ={"GLOO_SOCKET_IFNAME": "ib0"})[2].variables
    assert {name: has[name] for name in LOOPBACK if name in has} == dict.fromkeys(
        ("NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), "eth1"
    )
    assert not set(LOOPBACK) & plan_far(TORCH, interface="")[0].variables.keys()


@pytest.mark.parametrize(
    ("ports", "place", "workers"),
    [
        ((5000, 5001, 5002), "n", ["127.0.0.1:5000", "127.0.0.1:5001", "127.0.0.1:5002"]),
        ({"n": (5000,), "m": (4000, 4001)}, "", ["10.0.0.1:4000", "10.0.0.1:4001", "10.0.0.2:5000"]),
    ],
)
def test_tensorflows_workers_know_each_others_ports_each_of_its_own_node(ports, place, workers):
    places = [on(name="n")] * 3 if place else ROUND
    plans = plan_far(GroupSpec("tensorflow"), places, ports=ports)
    assert [one.rank.port for one in plans] == [int(one.partition(":")[2]) for one in workers]
    for rank, has in enumerate(plans):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        assert json.loads(has.variables["TF_CONFIG"]) == config


def test_horovods_ranks_on_two_machines_are_told_apart_by_the_addresses_of_these():
    names = ("RENDEZVOUS_ADDR", "IFACE")
    told = [one.variables for one in plan_far(HOROVOD)]
    assert [one["HOROVOD_HOSTNAME"] for one in told] == ["10.0.0.1", "10.0.0.1", "10.0.0.2"]
    assert [[one[f"HOROVOD_GLOO_{name}"] for name in names] for one in told] == [["10.0.0.1", "eth1"]] * 3
    assert [one["NCCL_SOCKET_IFNAME"] for one in told] == ["eth1"] * 3
    (first, *_) = plan_far(HOROVOD, environ={"HOROVOD_GLOO_IFACE": "ib0", "NCCL_SOCKET_IFNAME": "ib0"})
    assert first.variables["HOROVOD_GLOO_IFACE"] == "ib0"
    assert "NCCL_SOCKET_IFNAME" not in first.variables


def test_workers_of_slices_know_hosts_and_coordinator_by_their_addresses():
    hosts = [(name, i, f"10.0.{'ab'.index(name)}.{i}") for name in "ab" for i in range(2)]
    nodes = [Node(f"{name}{i}", devices=host(4).devices, slice=name, address=at) for name, i, at in hosts]
    places = [on(*range(4), name=one.id) for one in nodes]
    plans = plan(
        Bundle(cpu=1.0, tpu=4.0), places, GroupSpec("jax", workers_per_slice=2), nodes=nodes, bundles_per_slice=2
    )
    assert [one.variables["TPU_WORKER_HOSTNAMES"] for one in plans] == ["10.0.0.0,10.0.0.1"] * 2 + [
        "10.0.1.0,10.0.1.1"
    ] * 2
    assert {one.variables["MEGASCALE_COORDINATOR_ADDRESS"] for one in plans} == {"10.0.0.0"}


def test_a_node_is_sent_its_own_ranks_and_is_told_where_the_others_are():
    job = Job(1, "abcde_00001", 1, "e", "/e", "", "function", "f", "", b"", {}, 1, 0, 0, "", {}, False)
    for name, own, others in (("m", [0, 1], ((2, "n"),)), ("n", [2], ((0, "m"), (1, "m")))):
        told = group_job(job, plan_far(TORCH), TORCH, log_limit_bytes=0, node=name)
        assert [one.rank.rank for one in told.ranks] == own
        assert told.elsewhere == others


@pytest.mark.parametrize(
    ("framework", "number", "kind"),
    [
        ("torch", 1, "listening"),
        ("jax", 1, "shared"),
        ("tensorflow", -1, "named"),
        ("horovod", 1, "listening"),
        ("", 0, "shared"),
    ],
)
def test_a_framework_says_how_many_ports_it_needs_and_how_they_are_kept(framework, number, kind):
    spec = GroupSpec(framework)
    assert (spec.num_ports, spec.port_kind) == (number, kind)


def test_a_host_is_told_of_each_rank_and_of_the_limits():
    job = Job(1, "abcde_00001", 1, "e", "/e", "", "function", "f", "", b"", {"A": "1"}, 1, 0, 0, "", {}, False)
    spec = GroupSpec("torch", hang_s=3.0)
    plans = plan(Bundle(cpu=2.0), [on(), on()], spec, nodes=[Node("n")])
    told = group_job(job, plans, spec, is_spawned=True, log_limit_bytes=5)
    assert told.job == job
    assert told.ranks == plans
    assert told[2:] == (True, True, 5, 3.0, ())
