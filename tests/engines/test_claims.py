"""Claims of several drivers: in one process where only files matter, in real ones where deaths and races do."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import stat
import time

import pytest
from killed import fork

from sweep.core.packing import Packer
from sweep.core.resources import UNIT, Bundle, BundlePlacement, Device, Node, Placement, Resources
from sweep.engines.local import claims as claims_module
from sweep.engines.local.claims import Claims, directory_of

CPU = Resources((Bundle(cpu=1),))
GPU = Resources((Bundle(cpu=1, gpu=1),))
HALF = Resources((Bundle(gpu=0.5),))
GANG = Resources((Bundle(gpu=1), Bundle(gpu=1)))
NODE = Node("local", cpus=4, memory=1 << 30, devices=(Device("0"), Device("1")), custom={"licence": 2})
ON_GPU_0 = ("local", "gpu", "0", UNIT)


def at(*devices: str, node: str = "local", share: float = 1.0) -> Placement:
    """Return a placement of one bundle for each device, or of one without any."""
    return Placement(tuple(BundlePlacement(node, ((device, share),)) for device in devices) or (BundlePlacement(node),))


def want(claims: Claims, request: Resources | None) -> None:
    claims.awaited = request
    claims.look()


@pytest.fixture
def driver(tmp_path):
    made = []

    def make(name: str, nodes=(NODE,), **more) -> Claims:
        made.append(Claims(tmp_path, nodes, name, **more))
        return made[-1]

    yield make
    for claims in made:
        claims.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "lock") == []


@pytest.fixture
def child():
    """Run something in a forked process, which lives until the end of the test; returns its pid once it has run."""
    pids = []

    def start(run) -> int:
        ready, done = os.pipe()
        pid = fork()
        if pid == 0:
            status = 1
            try:
                run()
                os.write(done, b"1")
                status = 0
                signal.pause()
            finally:
                os._exit(status)
        pids.append(pid)
        os.close(done)
        assert os.read(ready, 1) == b"1", "the child failed"
        os.close(ready)
        return pid

    yield start
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def kill(pid: int) -> None:
    """Kill a process and wait until its descriptors are closed."""
    handle = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([handle], [], [], 10)
    os.close(handle)


# --- what is held ----------------------------------------------------------------------------------------------------


def test_what_one_driver_holds_the_other_sees_and_cannot_take(driver):
    one, other = driver("digits"), driver("letters")
    assert one.take("a", GPU, at("0"))
    (seen,) = other.look()
    assert str(seen) == f"experiment 'digits' (pid {os.getpid()})"
    assert set(seen.held) == {ON_GPU_0, ("local", "cpu", "", UNIT)}
    assert not other.take("b", GPU, at("0"))
    assert other.take("b", GPU, at("1"))
    one.give_back("a")
    assert other.look() == ()
    assert other.take("c", GPU, at("0"))


def test_what_a_driver_gives_back_while_it_is_alone_counts_until_it_looks(driver):
    one = driver("digits")
    assert one.take("a", GPU, at("0"))
    one.give_back("a")
    other = driver("letters")
    assert not other.take("b", GPU, at("0"))
    assert one.take("b", GPU, at("0"))
    assert not other.take("b", GPU, at("0"))
    one.give_back("b")
    one.look()
    assert other.take("b", GPU, at("0"))


def test_shares_of_two_drivers_fill_one_device_and_no_more(driver):
    one, other = driver("digits"), driver("letters")
    assert one.take("a", HALF, at("0", share=0.5))
    assert other.take("b", HALF, at("0", share=0.5))
    assert not one.take("c", HALF, at("0", share=0.5))
    assert not other.take("d", HALF, at("0", share=0.5))


def test_a_gang_is_claimed_whole_or_not_at_all(driver):
    one, other = driver("digits"), driver("letters")
    assert one.take("a", GPU, at("1"))
    assert not other.take("gang", GANG, at("0", "1"))
    assert one.take("b", GPU, at("0")), "nothing of the gang is held"
    one.give_back("a")
    one.give_back("b")
    assert other.take("gang", GANG, at("0", "1"))


@pytest.mark.parametrize(
    ("request_", "most"),
    [
        (Resources((Bundle(cpu=1.5),)), 2),
        (Resources((Bundle(memory=1 << 28),)), 4),
        (Resources((Bundle(custom=(("licence", 1.0),)),)), 2),
    ],
)
def test_cpus_memory_and_other_amounts_are_shared_by_all_drivers(driver, request_, most):
    drivers = [driver(name) for name in "abc"]
    assert sum(drivers[i % 3].take(i, request_, at()) for i in range(9)) == most


def test_of_two_totals_the_larger_is_the_machines_and_each_keeps_to_its_own(driver):
    large, small = driver("large", (Node("local", cpus=8),)), driver("small", (Node("local", cpus=2),))
    packer = Packer((Node("local", cpus=2),))
    for held, left in ((5, 2), (7, 1), (8, 0)):
        assert large.take("a", Resources((Bundle(cpu=held),)), at())
        packer.set_others(small.look())
        assert packer.fits_now(CPU) == (left >= 1)
        assert packer.fits_now(Resources((Bundle(cpu=2),))) == (left == 2)
        large.give_back("a")
    assert small.take("b", CPU, at())
    assert not large.take("c", Resources((Bundle(cpu=8),)), at())
    assert large.take("c", Resources((Bundle(cpu=7),)), at())
    assert not small.take("d", CPU, at())


def test_a_driver_that_counts_less_is_left_what_it_waits_for(driver):
    large, small = driver("large", (Node("local", cpus=8),)), driver("small", (Node("local", cpus=2),))
    assert large.take("a", Resources((Bundle(cpu=7),)), at())
    want(small, Resources((Bundle(cpu=2),)))
    packer = Packer((Node("local", cpus=8),))
    packer.hold(Resources((Bundle(cpu=7),)), at(), ("a", 1))
    packer.set_others(large.look())
    assert packer.place(CPU, ("b", 1)) is None
    large.give_back("a")
    assert small.take("b", Resources((Bundle(cpu=2),)), at())


def test_drivers_of_one_run_do_not_keep_off_each_other_and_others_keep_off_all_of_them(driver):
    nodes = [Node(name, cpus=2, devices=(Device("0"), Device("1"))) for name in ("one", "two")]
    one, two = (driver("spread", (node,), here=node.id, run="r") for node in nodes)
    other = driver("other")
    assert one.take("a", GPU, at("0", node="one"))
    assert two.take("b", GPU, at("0", node="two"))
    assert two.look() == one.look() == ()
    assert other.look() != ()
    assert not other.take("c", GPU, at("0"))
    one.give_back("a")
    assert not other.take("c", GPU, at("0"))
    two.give_back("b")
    assert other.take("c", GPU, at("0"))
    for claims, node in ((one, "one"), (two, "two")):
        assert (node, "gpu", "0", UNIT) in claims.look()[0].held
        assert not claims.take("a", GPU, at("0", node=node))
        assert claims.take("a", GPU, at("1", node=node))


def test_of_a_gang_on_several_nodes_each_driver_claims_what_is_its_own(driver):
    nodes = (Node("one", devices=(Device("0"),)), Node("two", devices=(Device("0"),)))
    gang = Placement((BundlePlacement("one", (("0", 1.0),)), BundlePlacement("two", (("0", 1.0),))))
    first, second = driver("first", nodes[:1], here="one"), driver("second", nodes[:1], here="one")
    assert first.take("a", GANG, gang)
    assert second.look()[0].held == (("one", "gpu", "0", UNIT),)
    assert not second.take("b", GANG, gang)


def test_one_device_is_one_under_any_number_and_of_equal_names_on_two_machines_two(driver):
    uuid = "GPU-10000000-aaaa-bbbb-cccc-000000000000"
    one, last = (driver("any", (Node("local", devices=(Device(uuid, visible=number),)),)) for number in "01")
    assert last.take("a", GPU, at(uuid))
    assert not one.take("b", GPU, at(uuid))
    nodes = (Node("a", devices=(Device("0"),)), Node("b", devices=(Device("0"),)))
    declared, again = driver("declared", nodes), driver("again", nodes)
    assert declared.take("a", HALF, at("0", node="a"))
    assert again.take("b", GPU, at("0", node="b"))
    assert not again.take("c", GPU, at("0", node="a"))


def test_a_node_that_is_called_like_this_host_is_this_machine(driver):
    host = socket.gethostname()
    one, other = driver("one", (Node(host, cpus=2),)), driver("other", (Node("local", cpus=2),))
    assert one.take("a", Resources((Bundle(cpu=2),)), at(node=host))
    assert not other.take("b", CPU, at())


def test_two_batch_jobs_on_a_machine_have_their_own_part_of_it_each(driver, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    one, two = driver("one"), driver("two")
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    other = driver("other")
    whole = Resources((Bundle(cpu=4),))
    assert one.take("a", whole, at())
    assert not two.take("b", CPU, at())
    assert other.take("c", whole, at())


def test_an_idle_process_keeps_its_devices_but_not_its_cpus(driver):
    one, other = driver("one"), driver("other")
    one.take("a", GPU, at("0"))
    one.give_back("a", idle=1)
    assert other.look()[0].held == (ON_GPU_0,)
    assert not other.take("b", GPU, at("0"))
    assert one.take("c", GPU, at("0")), "its own trial may use the process"
    assert ON_GPU_0 in other.look()[0].held
    one.give_back("c")
    one.give_back(1)
    assert other.take("b", GPU, at("0"))


# --- whose turn it is ------------------------------------------------------------------------------------------------


def test_who_waits_goes_before_those_that_came_later(driver):
    small, large, late = driver("small"), driver("large"), driver("late")

    def before(claims):
        return {claim.experiment for claim in claims.look() if claim.wants}

    small.take("a", GPU, at("0"))
    assert not large.take("gang", GANG, at("0", "1"))
    want(large, GANG)
    (wants,) = [claim for claim in late.look() if claim.wants]
    assert wants.wants == (("local", "gpu", "", 2),)
    want(late, GPU)
    assert [before(one) for one in (large, late, small)] == [set(), {"large"}, {"large", "late"}]
    small.give_back("a")
    assert large.take("gang", GANG, at("0", "1"))
    assert before(late) == set(), "what was waited for is held now"
    want(large, GANG)
    assert [before(one) for one in (late, large)] == [set(), {"late"}], "the next one waits behind"
    want(late, None)
    assert large.look() == ()


def test_a_driver_that_waits_and_does_not_move_lets_others_go_first(driver, monkeypatch):
    holder, stopped = driver("holder"), driver("stopped")
    holder.take("a", GPU, at("0"))
    want(stopped, GANG)
    assert holder.look()[0].wants
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + claims_module._DEAF_S + 1)
    assert holder.look() == ()
    stopped.look()
    assert holder.look()[0].wants, "it moves again, and has its place still"


# --- deaths ----------------------------------------------------------------------------------------------------------


def test_a_dead_drivers_claim_ends_with_the_last_process_that_inherited_it(driver, child, tmp_path):
    other = driver("other")
    host, pids = os.pipe()

    def drive():
        dead = Claims(tmp_path, (NODE,), "dead")
        assert dead.take("a", GPU, at("0"))
        pid = fork()
        if pid == 0:
            signal.pause()
        os.write(pids, str(pid).encode())

    kill(child(drive))
    left = int(os.read(host, 32))
    assert not other.take("b", GPU, at("0"))
    assert other.others[0].experiment == "dead"
    kill(left)
    assert other.take("b", GPU, at("0"))
    os.close(host)
    os.close(pids)


def test_a_stopped_driver_keeps_its_claim(driver, child, tmp_path):
    claims = []

    def drive():
        claims.append(Claims(tmp_path, (NODE,), "stopped"))
        claims[0].take("a", GPU, at("0"))

    pid = child(drive)
    os.kill(pid, signal.SIGSTOP)
    other = driver("other")
    assert not other.take("b", GPU, at("0"))
    kill(pid)
    assert other.take("b", GPU, at("0"))


def test_stale_files_are_cleared_away(driver, tmp_path):
    for number in range(200):
        (tmp_path / f"{number}-dead.claim").touch()
    said = []
    assert driver("new", notice=said.append).take("a", GPU, at("0"))
    assert len(list(tmp_path.iterdir())) == 2, "the lock, and its own"
    assert said == []


def test_drivers_that_race_never_hold_one_device_at_once(child, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    registry = tmp_path / "claims"
    registry.mkdir()

    def race(number):
        claims = Claims(registry, (NODE,), f"racer-{number}")
        done = 0
        while done < 60:
            gang = (done + number) % 3 == 0
            devices = ("0", "1") if gang else (str((done + number) % 2),)
            if not claims.take(done, GANG if gang else HALF, at(*devices)):
                continue
            for device in devices:
                os.close(os.open(marks / device, os.O_CREAT | os.O_EXCL))
            for device in devices:
                os.unlink(marks / device)
            claims.give_back(done)
            done += 1
        claims.close()

    def racers():
        pids = []
        for number in range(3):
            pid = fork()
            if pid == 0:
                status = 1
                try:
                    race(number)
                    status = 0
                finally:
                    os._exit(status)
            pids.append(pid)
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0]

    child(racers)
    assert [path.name for path in registry.iterdir()] == ["lock"]


# --- odd surroundings ------------------------------------------------------------------------------------------------


def test_a_directory_that_is_a_link_a_file_or_anothers_is_refused(tmp_path, monkeypatch):
    def directory(name):
        monkeypatch.setenv("SWEEP_CLAIMS", str(tmp_path / name))
        return directory_of()

    made = directory("claims")
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    made.chmod(0o1777)
    with pytest.raises(OSError, match=r"drwxrwxrwt of user .* expected a directory of yours"):
        directory("claims")
    assert stat.S_IMODE(made.stat().st_mode) == 0o1777, "it is not ours to change"
    (tmp_path / "link").symlink_to("claims")
    (tmp_path / "file").write_text("")
    for name in ("link", "file", "file/below", "missing/below"):
        with pytest.raises(OSError, match="directory"):
            directory(name)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(OSError, match=r"of user .* expected a directory of yours"):
        directory("claims")


def test_claims_never_lie_in_a_home_directory(monkeypatch):
    monkeypatch.delenv("SWEEP_CLAIMS")
    monkeypatch.setenv("HOME", "/nowhere/home")
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/nowhere/home/tmp")
    with pytest.raises(OSError, match="lies in the home directory, which machines may share"):
        directory_of()


@pytest.mark.parametrize("row", ["\0" * 100, "[1]", "{}", '{"experiment": "x"', '{"held": [["", "x"]]}'])
def test_a_row_that_cannot_be_read_is_named_once_and_hinders_nothing(driver, tmp_path, row):
    notices = []
    odd = tmp_path / "1-odd.claim"
    with odd.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        print(row, file=file, flush=True)
        claims = driver("new", notice=notices.append)
        assert all(claims.take(number, CPU, at()) for number in range(3))
    claims.look()
    assert notices == [f"another sweep of this machine is not seen: {odd} is damaged"]
    assert driver("another").look()[0].held == (("local", "cpu", "", 3 * UNIT),)


@pytest.mark.parametrize(("call", "number"), [((os, "pwrite"), errno.ENOSPC), ((fcntl, "flock"), errno.ENOLCK)])
def test_a_full_disk_or_one_that_locks_no_more_leaves_a_driver_alone_and_is_said_once(
    driver, monkeypatch, call, number
):
    said = []
    claims = driver("new", notice=said.append)

    def refuse(*arguments):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(*call, refuse)
        for _ in range(2):
            assert claims.take("a", GPU, at("0"))
            want(claims, GPU)
        assert driver("another").take("b", GPU, at("0"))
    (line,) = said
    assert line.startswith("other sweeps of this machine are not seen")
    assert os.strerror(number) in line


def test_a_lock_that_somebody_keeps_is_named_once_and_hinders_only_for_a_while(driver, tmp_path, monkeypatch):
    said = []
    claims = driver("new", notice=said.append)
    monkeypatch.setattr(claims_module, "_PATIENCE_S", 0.0)
    with (tmp_path / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert claims.take("a", GPU, at("0"))
        assert claims.look() == ()
    (line,) = said
    assert f"a process that does not go on keeps {tmp_path / 'lock'} locked" in line


def test_a_directory_that_was_cleared_is_filled_again(driver, tmp_path):
    one, other = driver("one"), driver("other")
    one.take("a", GPU, at("0"))
    for path in list(tmp_path.iterdir()):
        path.unlink()
    one.look()
    assert not other.take("b", GPU, at("0"))
    assert other.take("c", GPU, at("1"))
    assert ("local", "gpu", "1", UNIT) in one.look()[0].held


def test_a_file_is_kept_young(driver, tmp_path):
    one = driver("one")
    (file,) = tmp_path.glob("*.claim")
    os.utime(file, (0, 0))
    one.look()
    assert file.stat().st_mtime > 0
