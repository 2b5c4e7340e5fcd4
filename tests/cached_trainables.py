"""What trials of `test_cached_fork_server` do, in a module that is quick to import."""

import os
import sys

import sweep
from sweep.engines.local.orphans import experiment_mapped


def read(path):
    with open(path) as file:
        return file.read()


def marked(pid):
    """Return the experiment that the kernel shows for a process that was forked without a new program."""
    return experiment_mapped(pid)


def files_of(pid):
    return [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]


def train(config, **more):
    """Report what there is to see from inside; the fork server is the parent of the supervisor."""
    print("printed in", os.environ["SWEEP_EXPERIMENT"])
    supervisor = os.getppid()
    fork_server = int(read(f"/proc/{supervisor}/stat").rpartition(")")[2].split()[1])
    ends, child_end = os.pipe()
    if os.fork() == 0:
        os.write(child_end, marked("self").encode())
        os._exit(0)
    os.wait()
    sweep.report(
        supervisor=supervisor,
        fork_server=fork_server,
        own=os.environ["SWEEP_EXPERIMENT"],
        of_child=os.read(ends, 5000).decode(),
        of_fork_server=marked(fork_server),
        files=files_of(fork_server),
        is_loaded="wave" in sys.modules,
        **more,
    )


def use(config):
    import helper_of_kept

    train(config, value=helper_of_kept.VALUE)


def meet(config):
    """Be there together with the other."""
    open(config["own"], "w").close()
    while not os.path.exists(config["other"]):
        os.sched_yield()
    train(config)


def end_the_supervisor(config):
    if not os.path.exists(config["path"]):
        open(config["path"], "w").close()
        os.kill(os.getppid(), 9)
        while True:
            os.sched_yield()
    train(config)
