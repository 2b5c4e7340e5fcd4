"""What tests need that kill parts of a sweep on several machines: trials that note what they see, kills at random, and
the check that the record agrees with every note."""

from __future__ import annotations

import random
import signal
from collections import Counter, defaultdict
from pathlib import Path

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from links import Links
from test_kill import check_no_trial_runs_after_its_end

import sweep
from sweep.core.messages import Exited, ExitKind, PlanChanged, Reported
from sweep.engines.local.processes import descendants, send
from sweep.record.facts import read_facts
from sweep.record.proc import children_of

HEARTBEAT_TIMEOUT_S = 2.0

TRAIN = '''
import fcntl, os, pathlib, sys, tempfile, time
import sweep

STEPS = 6

def say(root, *words):
    """Note a line that survives whatever happens to this process."""
    descriptor = os.open(f"{root}/notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
    os.write(descriptor, (" ".join(map(str, words)) + "\\n").encode())
    os.close(descriptor)

def train(config):
    """Report some steps, store half of them in half of the trials, and note every answer."""
    root, trial = config["root"], sweep.get_context().get_trial_id()
    rank = sweep.train.get_context().get_world_rank() if config.get("group") else 0
    alive = os.open(f"{root}/alive/{trial}-{rank}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel lets go when this process is gone
    except BlockingIOError:
        say(root, "twice", trial, rank)
    checkpoint, first = sweep.get_checkpoint(), 1
    if checkpoint is not None:
        path = pathlib.Path(checkpoint.path)
        last = int((path / "step").read_text())
        first = last + 1
        if (path / "ballast").read_bytes() != bytes([last]) * 100_000:
            say(root, "torn", trial, path)
    if rank == 0:
        say(root, "from", trial, first)
    for step in range(first, STEPS + 1):
        time.sleep(0.05)
        is_saved = rank == 0 and config["saves"] and step % 2 == 0
        with tempfile.TemporaryDirectory() as directory:
            kept = None
            if is_saved:
                pathlib.Path(directory, "step").write_text(str(step))
                pathlib.Path(directory, "ballast").write_bytes(bytes([step]) * 100_000)
                kept = sweep.Checkpoint.from_directory(directory)
            sweep.report({"loss": config["x"] / step, "step": step}, checkpoint=kept)
        if rank == 0:
            say(root, "told", trial, step, int(is_saved))
'''

DRIVE = '''
import json
from sweep import Device, Node
from sweep.train import DataParallelTrainer, ScalingConfig

def drive(root, num_trials, is_group, engine, num_cpus):
    """Begin the sweep, or go on with it."""
    space = {"x": sweep.uniform(0.1, 1), "saves": sweep.choice([0, 1]), "root": root}
    options = {"resources_per_trial": {"cpu": 1}}
    trainable = train
    if is_group:
        trainable = DataParallelTrainer(train, scaling_config=ScalingConfig(
            num_workers=2, resources_per_worker={"CPU": 1}, placement_strategy="STRICT_SPREAD"))
        space, options = {"train_loop_config": {**space, "group": 1}}, {}
    sweep.run(
        trainable, config=space, num_samples=num_trials, name="chaos", storage_path=root, engine=engine, seed=3,
        metric="loss", mode="min", verbose=0, resume="AUTO", max_concurrent_trials=num_cpus,
        failure_config=sweep.FailureConfig(max_failures=-1, max_node_losses=1000), raise_on_failed_trial=False,
        checkpoint_config=sweep.CheckpointConfig(num_to_keep=1), **options,
    )
'''

# The same where nodes share nothing but remote storage.
APART = DRIVE.replace(
    "storage_path=root,", 'storage_path="b", storage_filesystem=DirFileSystem(root + "/bucket", LocalFileSystem()),'
).replace(
    "import json\n",
    "import json\nfrom fsspec.implementations.dirfs import DirFileSystem\n"
    "from fsspec.implementations.local import LocalFileSystem\n",
)

PLAIN = f"""
from links import Linked

if __name__ == "__main__":
    root, num_trials, is_group, ports = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "group", json.loads(sys.argv[4])
    nodes = [Node(name, cpus=3, devices=(Device("0"),)) for name in ports]
    engine = Linked(nodes, ports, pathlib.Path(root, "gate"), heartbeat_timeout_s={HEARTBEAT_TIMEOUT_S})
    drive(root, num_trials, is_group, engine, 6)
"""


def prepared(root: Path) -> Path:
    """Make the directories that trials note things in, and return that of the experiment."""
    (root / "alive").mkdir()
    return root / "chaos"


def agents_of(driver: int) -> list[int]:
    """Return the agents that are children of a process."""
    found = []
    for child in children_of(driver):
        try:
            if b"sweep.engines.cluster.agent" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
        except OSError:
            continue  # it ended just now
    return found


class Harm:
    """Kills one part after another of what runs for a driver, as its dice fall, and counts what it killed."""

    def __init__(self, seed: int, links: Links) -> None:
        self.draw = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._links = links
        self._silent: list[str] = []

    def do(self, driver: int, kinds: list[str]) -> str:
        """Do one of these kinds; returns which, empty: there was nothing that it could be done to."""
        kind = self.draw.choice(kinds)
        agents = agents_of(driver)
        agent = self.draw.choice(agents) if agents else 0
        victims: list[int] = []
        match kind:
            case "agent":
                victims = [agent]
            case "fork_server":
                victims = children_of(agent)[:1]
            case "supervisor":
                supervisors = [
                    supervisor for fork_server in children_of(agent) for supervisor in children_of(fork_server)
                ]
                victims = [self.draw.choice(supervisors)] if supervisors else []
            case "node":
                victims = [agent, *descendants(agent)]
            case "driver":
                victims = [driver]
            case "cut":
                self._links.cut(self.draw.choice(sorted(self._links.ports)))
            case "silence":
                name = self.draw.choice(sorted(self._links.ports))
                self._links.silence(name)
                self._silent.append(name)
        if kind not in ("cut", "silence") and not (agent and victims):
            return ""
        send(signal.SIGKILL, *victims)
        self.done[kind] += 1
        return kind

    def heal(self) -> None:
        """Let silent links carry again."""
        while self._silent:
            self._links.heal(self._silent.pop())


def check_apart(root: Path) -> None:
    """See that remote storage holds the checkpoints that trials ended with and no others, and bring what `check` looks
    at to where it looks. An agent that was killed last leaves its directory, until the next one comes."""
    (copy,) = root.glob("cache/remote/*/chaos")
    (root / "chaos").symlink_to(copy)
    there = {str(path.relative_to(root / "bucket/b/chaos")) for path in root.glob("bucket/b/chaos/*/checkpoint_*")}
    bucket = DirFileSystem(str(root / "bucket"), LocalFileSystem())
    for trial in sweep.ExperimentAnalysis("b/chaos", storage_filesystem=bucket).trials:
        if trial.checkpoint is not None:
            there.discard(str(Path(trial.checkpoint.path).relative_to(copy)))
            with trial.checkpoint.as_directory():
                pass
    assert there == set()


def check(root: Path, num_trials: int) -> None:
    """Compare what trials have seen with the record, and the record with itself."""
    experiment = root / "chaos"
    trials = sweep.ExperimentAnalysis(experiment).trials
    facts = list(read_facts(experiment / "sweep.db"))
    assert len(trials) == num_trials
    unlucky = {trial.trial_id for trial in trials if trial.status == "ERROR"}
    assert all(trial.status == "TERMINATED" for trial in trials if trial.trial_id not in unlucky)
    losses: Counter[str] = Counter()
    for fact in facts:
        if isinstance(fact.event, Exited) and fact.event.exit.kind is ExitKind.LOST:
            losses[fact.event.trial_id] += 1
        if isinstance(fact.event, PlanChanged):  # the driver was killed
            losses.update(command[2] for command in fact.caused or () if command[:2] == ["Notify", "trial_recover"])
    # Four times in a row are too many, by the rule: then it had nothing new to say between.
    assert {trial_id: losses[trial_id] for trial_id in unlucky if losses[trial_id] <= 3} == {}
    check_no_trial_runs_after_its_end(facts, num_trials)
    recorded = Counter(
        (fact.event.trial_id, fact.metrics["step"])
        for fact in facts
        if isinstance(fact.event, Reported) and fact.metrics is not None
    )
    told: Counter[tuple[str, int]] = Counter()
    saved: dict[str, int] = defaultdict(int)
    for line in (root / "notes").read_text().splitlines():
        what, trial, *rest = line.split()
        match what:
            case "told":
                told[trial, int(rest[0])] += 1
                if rest[1] == "1":
                    saved[trial] = int(rest[0])
            case "from":
                assert int(rest[0]) > saved[trial], f"{trial} starts at step {rest[0]}, and {saved[trial]} was stored"
            case _:
                raise AssertionError(line)
    assert {trial.trial_id for trial in trials} - unlucky <= {trial for trial, _ in told}
    assert {key: number for key, number in told.items() if number > recorded[key]} == {}
    for trial in trials:
        if trial.trial_id in unlucky:
            continue
        assert trial.last_result["step"] == 6
        if saved[trial.trial_id]:
            assert trial.checkpoint is not None
            path = Path(trial.checkpoint.path)
            last = int((path / "step").read_text())
            assert last == 6
            assert (path / "ballast").read_bytes() == bytes([last]) * 100_000
    assert sweep.replay(experiment).differences == []
