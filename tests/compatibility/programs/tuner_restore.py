"""can_restore asked first; the same script then restores with errored trials resumed."""

import os

from ray import train, tune

PATH = os.path.abspath("out")
FLAG = os.path.abspath("fixed")


def train_fn(config):
    start = 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as d:
            start = int(open(os.path.join(d, "it")).read())
    for it in range(start, 4):
        if it == 2 and config["k"] == "b" and not os.path.exists(FLAG):
            raise ValueError("not fixed yet")
        os.makedirs(f"ckpt_{it}", exist_ok=True)
        with open(f"ckpt_{it}/it", "w") as f:
            f.write(str(it + 1))
        train.report({"it": it, "start": start}, checkpoint=train.Checkpoint.from_directory(f"ckpt_{it}"))


def run():
    exp = os.path.join(PATH, "restored")
    if tune.Tuner.can_restore(exp):
        tuner = tune.Tuner.restore(exp, trainable=train_fn, resume_errored=True)
    else:
        tuner = tune.Tuner(
            train_fn,
            param_space={"k": tune.grid_search(["a", "b", "c"])},
            run_config=train.RunConfig(name="restored", storage_path=PATH),
        )
    return tuner.fit()


assert not tune.Tuner.can_restore(PATH)
results = run()
assert results.num_errors == 1 and len(results.errors) == 1
assert "not fixed yet" in str(results.errors[0]), results.errors
open(FLAG, "w").close()
results = run()
assert results.num_errors == 0
assert {r.config["k"]: r.metrics["start"] for r in results} == {"a": 0, "b": 2, "c": 0}
assert all(r.metrics["it"] == 3 for r in results)
restored = tune.Tuner.restore(os.path.join(PATH, "restored"), train_fn)
assert len(restored.get_results()) == 3
