"""A gloo group of two workers by torchrun, twice: it keeps nothing between the two."""

import json
import subprocess
import sys
import time
from pathlib import Path

LOOP = """
import torch.distributed as dist
dist.init_process_group("gloo")
assert dist.get_world_size() == 2
dist.destroy_process_group()
"""

script = Path(sys.argv[1], "loop.py")
script.write_text(LOOP)
command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--local-addr=127.0.0.1"]
command += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", str(script)]
spent = []
for _ in range(2):
    began = time.time()
    subprocess.run(command, check=True)
    spent.append(time.time() - began)
print(json.dumps({"first_s": spent[0], "second_s": spent[1]}))
