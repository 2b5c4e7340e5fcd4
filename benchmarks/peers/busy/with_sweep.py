"""How full nodes are that come and go, and how busy workers that wait for TPE, in virtual time: see benchmarks/busy.py.

Arguments: a directory, nodes, their trials, workers. Prints makespan over its bound, and the workers' share in trials.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
import busy

nodes, trials, workers = map(int, sys.argv[2:5])
cost_s = busy.tpe_s(workers, 6 * workers, window=1000)
ratio = busy.preempted(nodes, trials)["ratio"]
print(json.dumps({"ratio": ratio, "busy": busy.suggested(workers, 6, cost_s)["busy"]}))
