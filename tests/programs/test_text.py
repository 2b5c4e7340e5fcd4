"""What is found in lines as training programs print them."""

# ruff: noqa: E501 lines as they are printed

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from sweep.errors import ConfigError
from sweep.programs.naming import TIMES
from sweep.programs.text import Found, Lines, last_number, same_name

# A line, or several with newlines, and what is found in the last that says anything: values, and the kind if it is not text.
CORPUS: list[tuple[str, dict[str, float]] | tuple[str, dict[str, float], str]] = [
    # JSON and Python's dicts
    ('{"loss": 0.25, "epoch": 2, "name": "a1", "done": true}', {"loss": 0.25, "epoch": 2}, "json"),
    ('{"val": {"loss": 0.5, "per_class": [1, 2]}, "lr": "1e-4"}', {"val/loss": 0.5, "lr": 1e-4}, "json"),
    ('{"loss": NaN, "best": Infinity}', {"loss": math.nan, "best": math.inf}, "json"),
    ('[2024-03-01 09:00:00] epoch 4: {"acc": 0.75}', {"epoch": 4, "acc": 0.75}, "json"),
    ("{'loss': 1.5, 'grad_norm': 2.25, 'learning_rate': 5e-05, 'epoch': 0.5}", {"loss": 1.5, "grad_norm": 2.25, "learning_rate": 5e-5, "epoch": 0.5}, "json"),
    ("{'eval_loss': '0.125', 'eval_runtime': '3.5', 'epoch': '1'}", {"eval_loss": 0.125, "eval_runtime": 3.5, "epoch": 1}, "json"),
    ("validation: {'loss': 0.5, 'path': None}", {"validation loss": 0.5}, "json"),
    ("{'acc': np.float64(0.5), 'loss': tensor(2.5, device='cuda:0'), 'z': nan}", {"acc": 0.5, "loss": 2.5, "z": math.nan}),
    ('  "loss": 0.5,', {"loss": 0.5}),
    # one key, one value
    ("loss: 0.5 (step 10)", {"loss": 0.5, "step": 10}),
    ("accuracy=0.75", {"accuracy": 0.75}),
    ("learning rate : 1e-3", {"learning rate": 1e-3}),
    ("Throughput: 1,234.5 images/s", {"Throughput": 1234.5}),
    ("latency: 12.5 ms", {"latency": 12.5}),
    ("score -12", {"score": -12}),
    ("loss is: .5, acc is: +0.25", {"loss": 0.5, "acc": 0.25}),
    ("loss: nan acc: -inf", {"loss": math.nan, "acc": -math.inf}),
    ("Final accuracy of 93.5%.", {"Final accuracy": 93.5}),
    ("精度：0.5", {"精度": 0.5}),
    ("psnr: 31.5dB", {"psnr": 31.5}),
    ("LR: [0.001]", {"LR": 0.001}),
    ("mean reward = 12.5 +/- 3.5", {"mean reward": 12.5}),
    ("f1-score (micro avg) 0.5", {"f1-score (micro avg)": 0.5}),
    ("Accuracy of the net on the 5000 test images: 61 %", {"Accuracy of the net on the 5000 test images": 61}),
    ("Cost after iteration 100: 0.5", {"iteration": 100, "Cost": 0.5}),
    ("Test accuracy at step 20: 0.75, loss: 0.5", {"step": 20, "Test accuracy": 0.75, "Test loss": 0.5}),
    ("mAP@0.5:0.95: 0.25 mAP50: 0.5", {"mAP@0.5:0.95": 0.25, "mAP50": 0.5}),
    ("New best score@0.5: 0.75! Saving", {"New best score@0.5": 0.75}),
    ("03-01 12:00:00, Epoch 2 Val, stage1:0.5, stage2:0.25, mae:35.5, took: 8 sec", {"epoch": 2, "Val stage1": 0.5, "Val stage2": 0.25, "Val mae": 35.5}),
    ("------------------Epoch:1/299------------------", {"epoch": 1}),
    ("loss -> 0.5", {"loss": 0.5}),
    ("P@1\t0.75", {"P@1": 0.75}),
    ("Latency     1.25ms    0.45ms  12.3ms   85.00%", {"Latency": 1.25}),
    # loops of one's own
    ("step 250: train loss 2.1, val loss 2.3", {"step": 250, "train loss": 2.1, "val loss": 2.3}),
    ("iter 100: loss 2.3, time 24.5ms, mfu 1.25%", {"iteration": 100, "loss": 2.3, "time": 24.5, "mfu": 1.25}),
    ("epoch 3 loss 0.5 bleu4 12.5", {"epoch": 3, "loss": 0.5, "bleu4": 12.5}),
    ("Epoch 3/10 - loss: 0.5 - val_loss: 0.25", {"epoch": 3, "loss": 0.5, "val_loss": 0.25}),
    ("Epoch [003/100], Step [10/600], Loss: 0.5", {"epoch": 3, "step": 10, "Loss": 0.5}),
    ("[Epoch 2/200] [Batch 5/938] [D loss: 0.5] [G loss: 1.5]", {"epoch": 2, "batch": 5, "D loss": 0.5, "G loss": 1.5}),
    ("[1/5][20/1583]\tLoss_D: 1.5\tD(x): 0.5\tD(G(z)): 0.25 / 0.125", {"Loss_D": 1.5, "D(x)": 0.5, "D(G(z))": 0.25}),
    ("[2,  4000] loss: 2.25", {"loss": 2.25}),
    ("Epoch: 03 | Time: 0m 12s", {"epoch": 3}),
    ("Epoch #12: train_loss=1.5, time=0.5s, remaining=3.5min", {"epoch": 12, "train_loss": 1.5, "time": 0.5}),
    ("global step 500 loss 0.5", {"global_step": 500, "loss": 0.5}),
    ("Episode 40 | Avg Reward: -7.5 | Epsilon: 0.75", {"episode": 40, "Avg Reward": -7.5, "Epsilon": 0.75}),
    ("| epoch   1 |   200/ 2983 batches | lr 5.00 | loss  7.5 | ppl  1808.0", {"epoch": 1, "lr": 5, "loss": 7.5, "ppl": 1808}),
    ("| end of epoch   2 | time: 39.5s | valid loss  5.5", {"epoch": 2, "time": 39.5, "valid loss": 5.5}),
    ("Saved the best model at epoch 5 with val loss 0.125", {"epoch": 5, "val loss": 0.125}),
    ("Epoch 00005: val_loss improved from 0.52 to 0.48, saving model", {"epoch": 5}),
    ("\tTrain Loss: 0.5 | Train Acc: 88.5%", {"Train Loss": 0.5, "Train Acc": 88.5}),
    ("\t Val. Loss: 0.25 |  Val. Acc: 90%", {"Val. Loss": 0.25, "Val. Acc": 90}),
    ("end of step 3; loss=0.5; loss=0.75", {"step": 3, "loss": 0.5}),
    # of which part of the data a line speaks
    ("[Val] loss=0.3", {"Val loss": 0.3}),
    ("[Train] loss=0.5 lr=0.1", {"Train loss": 0.5, "lr": 0.1}),
    ("Epoch 1, Train Loss: 0.5, Accuracy: 0.6, Val Loss: 0.7, Accuracy: 0.8", {"epoch": 1, "Train Loss": 0.5, "Train Accuracy": 0.6, "Val Loss": 0.7, "Val Accuracy": 0.8}),
    ("epoch 3 train_loss=0.5 val_loss=0.75 acc=0.25", {"epoch": 3, "train_loss": 0.5, "val_loss": 0.75, "acc": 0.25}),
    ("epoch 3 | loss (train): 0.5 | loss (val): 0.75", {"epoch": 3, "loss (train)": 0.5, "loss (val)": 0.75}),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.25", {"epoch": 1, "Train Loss": 2.25}),
    ("Test set: Average loss: 0.125, Accuracy: 9905/10000 (99%)", {"Test Average loss": 0.125, "Test Accuracy": 0.9905}),
    ("Test: [ 10/196]\tTime  0.5 ( 0.6)\tLoss 1.5 (1.6)", {"Test Loss": 1.5, "Time": 0.5}),
    # libraries
    ("Epoch 3/10", {"epoch": 3}),
    ("21/28 [======>...] - ETA: 1s - loss: 0.5 - acc: 0.75", {"loss": 0.5, "acc": 0.75}, "bar"),
    ("\x1b[1m9/9\x1b[0m \x1b[32m━━━━\x1b[0m \x1b[1m1s\x1b[0m 2ms/step - loss: 0.5 - val_loss: 0.25", {"loss": 0.5, "val_loss": 0.25}, "bar"),
    (" 50%|█████     | 5/10 [00:01<00:01,  4.50it/s, loss=0.5]", {"loss": 0.5}, "bar"),
    ("\rTraining:   0%|   | 0/9\rTraining:  11%|▏  | 1/9 [00:00<00:03,  2.5it/s, loss=1.5e-2]", {"Training loss": 0.015}, "bar"),
    ("Epoch 3: 100%|██| 10/10 [00:00<00:00, 55.5it/s, v_num=0, train_loss=0.5]", {"epoch": 3, "train_loss": 0.5}, "bar"),
    ("Epoch 0/9 ━━━━ 10/10 0:00:03 • 0:00:00 36.5it/s v_num: 0.000 train_loss: 0.5", {"epoch": 0, "train_loss": 0.5}, "bar"),
    ("[3]\ttrain-rmse:0.5\teval-rmse:0.75", {"train-rmse": 0.5, "eval-rmse": 0.75, "iteration": 3}),
    ("[100]\tvalid_0's l2: 0.5\tvalid_0's auc: 0.75", {"valid_0's l2": 0.5, "valid_0's auc": 0.75, "iteration": 100}),
    ("7:\tlearn: 0.5\ttest: 0.75\tbest: 0.75 (6)\tremaining: 5s", {"learn": 0.5, "test": 0.75, "best": 0.75, "iteration": 7}),
    ("Epoch: [2][  10/5005]\tTime  1.5 ( 1.2)\tLoss 6.5e+00 (7.0e+00)\tAcc@1   0.25 (  0.10)", {"epoch": 2, "Time": 1.5, "Loss": 6.5, "Acc@1": 0.25}),
    (" * acc@1 76.1 (75.9) acc@5 92.8", {"acc@1": 76.1, "acc@5": 92.8}),
    ("Epoch(train)  [1][50/7330]  lr: 2.5e-03  eta: 1 day, 3:04:07  memory: 3421  loss: 1.5", {"epoch": 1, "lr": 0.0025, "memory": 3421, "train loss": 1.5}),
    ("[10/12 13:05:11 d2.events]:  eta: 0:10:11  iter: 19  total_loss: 2.5  max_mem: 3421M", {"iteration": 19, "total_loss": 2.5}),
    ("epoch 001:    100 / 1000 loss=12.5, ppl=5792, wps=12.5", {"epoch": 1, "loss": 12.5, "ppl": 5792, "wps": 12.5}),
    ("| epoch 004 | valid on 'valid' subset | loss 3.5 | ppl 12.5", {"epoch": 4, "valid loss": 3.5, "valid ppl": 12.5}),
    (" iteration      100/  500000 | learning rate: 1.0E-04 | lm loss: 9.5E+00 |", {"iteration": 100, "learning rate": 1e-4, "lm loss": 9.5}),
    ("Epoch[1] Iteration[10/938] Loss: 0.5", {"epoch": 1, "iteration": 10, "Loss": 0.5}),
    ("Validation Results - Epoch: 1  Avg accuracy: 0.75 Avg loss: 0.5", {"epoch": 1, "Validation Avg accuracy": 0.75, "Validation Avg loss": 0.5}),
    ("Eval num_timesteps=2500, episode_reward=-29.5 +/- 13.2", {"Eval num_timesteps": 2500, "Eval episode_reward": -29.5}),
    # what logging puts before it
    ("2024-01-02 10:00:00,123 - INFO - epoch 3 loss 0.5", {"epoch": 3, "loss": 0.5}),
    ("2024-01-02 10:00:00.123 | INFO     | __main__:train:45 - epoch 3 loss 0.5", {"epoch": 3, "loss": 0.5}),
    ("I0912 11:40:27.956218 139735407601536 loop.py:652] Step 100 per-step time 0.5s loss=1.5", {"step": 100, "per-step time": 0.5, "loss": 1.5}),
    ("INFO:tensorflow:loss = 0.5, step = 100 (2.5 sec)", {"loss": 0.5, "step": 100}),
    ("0: [rank1]: loss 0.5", {"loss": 0.5}),
    ("02:10:11 train.py:77: loss 0.5", {"loss": 0.5}),
    # tables
    ("-----\n| rollout/      |      |\n|    ep_rew_mean | 21.5 |\n| time/ |  |\n|    fps | 1e+03 |\n| best | 3 |\n-----", {"rollout/ep_rew_mean": 21.5, "time/fps": 1000, "best": 3}),
    ("| epoch | loss |\n|---|---|\n| 2 | 0.5 |", {"epoch": 2, "loss": 0.5}),
    ("┃ Test metric ┃ DataLoader 0 ┃\n│ test_acc │ 0.75 │\n│ test_loss │ 0.5 │\n└──┴──┘", {"test_acc": 0.75, "test_loss": 0.5}),
    ("  epoch    train_loss    valid_acc     dur\n-------  ------------  -----------  ------\n      2        \x1b[36m0.5\x1b[0m       0.7500  0.125", {"epoch": 2, "train_loss": 0.5, "valid_acc": 0.75, "dur": 0.125}),
    ("epoch     train_loss  accuracy  time    \nEpoch 1/1 : |----| 0.00%\n1         0.500000    0.750000  00:05     ", {"epoch": 1, "train_loss": 0.5, "accuracy": 0.75}),
    ("epoch,loss,acc\n3,0.5,0.75", {"epoch": 3, "loss": 0.5, "acc": 0.75}),
    ("epoch loss top5\n3 0.5 0.75", {"epoch": 3, "loss": 0.5, "top5": 0.75}),
    ("      Epoch    GPU_mem   box_loss       Size\n        3/9         0G      1.125        640: 100%|██| 4/4 [00:02<00:00,  1.6it/s]", {"epoch": 3, "box_loss": 1.125, "Size": 640}),
    ("              precision    recall  f1-score\n\n           a       0.50      0.75      0.60\n   macro avg       0.25      0.50      0.75", {"macro avg precision": 0.25, "macro avg recall": 0.5, "macro avg f1-score": 0.75}),
]  # fmt: skip

NOTHING = """
Loading the data
Epoch 3 took
Python 3.11.7 on linux
Using torch 2.4 and CUDA 12.1
Collecting numpy==1.26.4
downloaded 12MB in 3s
max_mem: 3421M
commit 3f2a91e0
Serving on http://127.0.0.1:6006/ (Press CTRL+C to quit)
listening at 10.0.0.1:29500
saved runs/2024/lr=0.1/epoch=3-val_loss=0.25.ckpt
/tmp/run-3/ckpt_100.pt
  File "train.py", line 123, in main
train.py:88: UserWarning: deprecated since 1.13
==== 102 failed in 3.13s ====
Found 5000 images belonging to 10 classes.
EarlyStopping counter over 3
100%|██████████| 10/10 [00:02<00:00,  4.5it/s]
12
2024-01-02
elapsed 00:12:34
GPU: 0
accuracy: yes
p < 0.05
1: 912.3, 912.3 avg loss, 0.001 rate, 3.1 seconds, 64 images
""".strip().split("\n")


def last(lines: Lines, text: str) -> Found | None:
    found = [one for line in re.split(r"[\r\n]", text) for one in lines.read(line)]
    return found[-1] if found else None


def test_what_programs_print_is_understood() -> None:
    wrong: list[Any] = []
    for text, values, *kind in CORPUS:
        found = last(Lines(), text)
        if found is None or repr(sorted(found.values.items())) != repr(
            sorted((k, float(v)) for k, v in values.items())
        ):
            wrong.append((text, values, found))
        elif found.kind != (kind[0] if kind else "text"):
            wrong.append((text, kind, found))
    assert not wrong
    assert len(CORPUS) >= 60


def test_versions_paths_dates_sizes_and_traces_are_no_metrics() -> None:
    found = {text: last(Lines(), text) for text in NOTHING}
    assert {text: one for text, one in found.items() if one and not one.values.keys() <= TIMES} == {}


def test_a_head_is_remembered_while_other_lines_come_between() -> None:
    lines = Lines()
    found = [
        one.values for line in ("epoch\tloss", "1\t0.5", "saved a b", "step 3", "2\t0.25") for one in lines.read(line)
    ]
    assert found == [{"epoch": 1, "loss": 0.5}, {"step": 3}, {"epoch": 2, "loss": 0.25}]


def test_a_table_of_keys_and_values_ends_with_the_next_line_of_text() -> None:
    lines = Lines()
    assert lines.read("| loss | 0.5 |") == lines.read("| acc | 0.75 |") == []
    assert lines.read("acc: 1") == [Found({"loss": 0.5, "acc": 0.75}), Found({"acc": 1.0})]
    assert lines.read("done") == []


def test_nothing_but_the_users_pattern_counts() -> None:
    lines = Lines(r"<(?P<key>[^=>]+)=(?P<value>[^@>]+)(?:@(?P<step>\d+))?>")
    assert lines.read("loss: 7 <my loss = 0.5@3> <acc=nan> <acc=x>")[:1] == [Found({"my loss": 0.5, "step": 3.0})]
    assert [one.values.keys() for one in lines.read("<acc=1,000.5> <a=b>")] == [{"acc"}]
    assert lines.read('{"loss": 1}') == []


@pytest.mark.parametrize(
    ("pattern", "message"), [("(", "no regular expression"), (r"loss=(\d+)", "lacks key or value")]
)
def test_a_pattern_that_cannot_do_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Lines(pattern)


def test_names_that_differ_in_case_and_signs_are_the_same() -> None:
    assert all(same_name("val_loss", name) for name in ("val_loss", "Val loss", "val/loss", "val-loss", "VAL.LOSS"))
    assert not same_name("loss", "val loss")
    assert not same_name("loss1", "loss2")


@pytest.mark.parametrize(
    ("line", "number"),
    [("0.5", 0.5), ("\x1b[32mResult: -1e-3\x1b[0m", -1e-3), ("93.5%", 93.5), ("1 2", None), ("done", None), ("", None)],
)
def test_the_number_of_a_line_that_has_only_one(line: str, number: float | None) -> None:
    assert last_number(line) == number


def test_lines_that_nobody_would_print_are_survived() -> None:
    lines = Lines()
    for line in (
        "{" * 200_000,
        "1" * 300_000,
        "a:1 " * 100_000,
        "|1" * 100_000 + "|",
        "\r1" * 100_000,
        '{"a":' * 100_000 + "1",
    ):
        lines.read(line)
    for line in (
        "\x00\x1b[",
        "|",
        "||",
        "| |",
        "\ud800 loss: 1",
        "{}",
        "{1}",
        '{"": 1}',
        '{"a": ' + "1" * 5000 + "}",
        "loss: " + "9" * 999,
    ):
        lines.read(line)
        last_number(line)
