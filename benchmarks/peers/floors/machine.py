"""What this machine can do with nothing of ours around it: processes, commits, files."""

import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time

directory, seconds = sys.argv[1], float(sys.argv[2])
found = {}


def forks(until: float) -> int:
    """Fork, exit and wait until the time comes; return how often."""
    number = 0
    while time.perf_counter() < until:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        number += 1
    return number


def parallel_forks() -> int:
    """Do the same in as many processes as there are CPUs; return how often in all."""
    until = time.perf_counter() + seconds
    readers = []
    for _ in range(os.cpu_count() or 1):
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, str(forks(until)).encode())
            os._exit(0)
        os.close(write)
        readers.append(read)
    counts = []
    for read in readers:
        counts.append(int(os.read(read, 100)))
        os.close(read)
        os.wait()
    return sum(counts)


def measure_forks(kind: str) -> None:
    """Count forks by one process, then by as many as there are CPUs."""
    found[f"fork_{kind}_one_per_s"] = forks(time.perf_counter() + seconds) / seconds
    found[f"fork_{kind}_per_s"] = parallel_forks() / seconds


def commits(name: str, synchronous: str) -> float:
    """Return how many commits of 200 bytes a second SQLite makes with a write-ahead log."""
    database = sqlite3.connect(f"{directory}/{name}.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(f"PRAGMA synchronous = {synchronous}")
    database.execute("CREATE TABLE fact (seq INTEGER PRIMARY KEY, data TEXT)")
    number, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        database.execute("INSERT INTO fact (data) VALUES (?)", ("x" * 200,))
        number += 1
    spent = time.perf_counter() - began
    database.close()
    return number / spent


def files() -> float:
    """Return how many files of 1 MB a second can be written and flushed, each in a directory of its own."""
    content = os.urandom(1_000_000)
    number, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        os.mkdir(f"{directory}/{number}")
        with open(f"{directory}/{number}/model.bin", "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        number += 1
    return number / (time.perf_counter() - began)


def python_s(code: str, repeats: int) -> float:
    """Return the median time of a Python that does this, in s."""
    spent = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


found["python_s"] = python_s("pass", 10)
found["commit_flushed_per_s"] = commits("flushed", "FULL")
found["commit_per_s"] = commits("unflushed", "OFF")
found["file_per_s"] = files()
measure_forks("bare")
try:
    import torch  # noqa: F401
except ImportError:
    pass
else:
    measure_forks("torch")
    found["import_torch_s"] = python_s("import torch", 3)
print(json.dumps(found))
