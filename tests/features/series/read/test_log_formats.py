"""Lines of public logs, with other numbers: the repository of each stands beside it.

The expectation was written before the reader, and is what a person reads in the line.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import polars as pl
import pytest

from rankscope.features.series.read.log_series import read_log_series


class Excerpt(NamedTuple):
    """Lines of a log, and some of the points in them: name, step, value."""

    text: str
    points: tuple[tuple[str, int, float], ...]


BAR = "█" * 3
EXCERPTS = {
    # huggingface/lerobot: thousands of steps are rounded
    "lerobot": Excerpt(
        "INFO 2026-04-22 07:09:32 ot_train.py:423 step:200 smpl:3K ep:17 epch:0.34 loss:0.710"
        " grdn:0.700 lr:3.8e-06 updt_s:2.3 data_s:0.009\n"
        "INFO 2026-04-22 07:19:32 ot_train.py:423 step:3K smpl:48K ep:27 epch:5.10 loss:0.310"
        " grdn:0.400 lr:2.8e-06 updt_s:2.2 data_s:0.010",
        (("loss", 200, 0.710), ("data_s", 200, 0.009), ("loss", 2500, 0.310)),
    ),
    # NVIDIA/Megatron-LM
    "megatron": Excerpt(
        " [2026-09-11 12:06:52.98] iteration        3/ 7629408 | consumed samples:           96 | elapsed time per"
        " iteration (ms): 24379.9 | learning rate: 1.406250E-04 | global batch size:    32 | lm loss: 1.107468E+01 |"
        " loss scale: 1.0 | grad norm: 30.066 | num zeros: 1299.0 | params norm: 496.206 | number of skipped"
        " iterations:   0 | number of nan iterations:   0 |",
        (("loss", 3, 11.07468), ("grad_norm", 3, 30.066), ("lr", 3, 1.40625e-4), ("samples", 3, 96),
         ("step_s", 3, 24.3799), ("loss_scale", 3, 1.0), ("num_zeros", 3, 1299), ("params_norm", 3, 496.206),
         ("skipped", 3, 0), ("nans", 3, 0)),
    ),
    # epfLLM/Megatron-LLM issue 11
    "megatron old": Excerpt(
        " iteration      142/  250000 | consumed samples:       124928 | elapsed time per iteration (ms): 86545.2 |"
        " learning rate: 9.150E-06 | global batch size:  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm:"
        " 0.231 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        (("loss", 142, 2.50422), ("grad_norm", 142, 0.231), ("lr", 142, 9.15e-6)),
    ),
    # bigscience-workshop/Megatron-DeepSpeed issue 396
    "megatron-deepspeed": Excerpt(
        " iteration     5426/  250000 | consumed samples:        43408 | consumed tokens:     88899584 | elapsed time"
        " per iteration (s): 4.24 | learning rate: 2.999E-04 | global batch size:     8 | loss scale: 1.0 | grad norm:"
        " nan | actual seqlen:  2048 | number of skipped iterations:   0 | samples per second: 1.886 | TFLOPs: 78.46 |",
        (("grad_norm", 5426, math.nan), ("tokens", 5426, 88899584), ("step_s", 5426, 4.24), ("lr", 5426, 2.999e-4)),
    ),
    # EleutherAI/gpt-neox
    "gpt-neox": Excerpt(
        " samples/sec: 51.234 | iteration       10/      50 | elapsed time per iteration (ms): 624.6 | learning rate:"
        " 1.500E-05 | approx flops per GPU: 35.1TFLOPS | lm_loss: 7.123456E+00 | loss scale: 4096.0 | number of skipped"
        " iterations:   0 | number of nan iterations:   0 |",
        (("loss", 10, 7.123456), ("step_s", 10, 0.6246), ("loss_scale", 10, 4096)),
    ),
    # huggingface/nanotron issue 233
    "nanotron": Excerpt(
        "[0434:0]:11/01/2024 11:05:18 [INFO|DP=0|PP=0|TP=0|node0434]: iteration: 12001 / 17500 | consumed_tokens: 25.2G"
        " | elapsed_time_per_iteration_ms: 28.2K | tokens_per_sec: 74.5K | global_batch_size: 1.02K | lm_loss: 2.3 |"
        " lr: 0.000289 | grad_norm: 0.15 | cuda_memory_allocated: 8.86G",
        (("loss", 12001, 2.3), ("lr", 12001, 0.000289), ("grad_norm", 12001, 0.15), ("tokens", 12001, 25.2e9),
         ("step_s", 12001, 28.2)),
    ),
    # pytorch/torchtitan pull request 3393
    "torchtitan": Excerpt(
        "[rank2]:[titan] 2026-05-18 16:04:46,338 - root - INFO - \x1b[31mstep: 14  \x1b[32mloss:  3.24405  "
        "\x1b[38;2;180;60;0mgrad_norm:  0.8319  \x1b[34mmemory:  9.46GiB(64.99%)  \x1b[36mtps: 7,282  tflops: 0.52"
        "  mfu: 0.17%\x1b[39m",
        (("loss", 14, 3.24405), ("grad_norm", 14, 0.8319), ("tps", 14, 7282)),
    ),
    # NVIDIA-BioNeMo/bionemo-recipes pull request 740
    "nemo 2": Excerpt(
        "Training epoch 0, iteration 20/149 | lr: 3e-05 | consumed_samples: 121 | global_batch_size: 1 | global_step:"
        " 120 | reduced_train_loss: 1.233 | train_step_timing in s: 0.03146 | val_loss: 4.106",
        (("loss", 120, 1.233), ("lr", 120, 3e-5), ("step_s", 120, 0.03146), ("samples", 120, 121),
         ("val_loss", 120, 4.106)),
    ),
    # NVIDIA/NeMo-Framework-Launcher issue 55
    "nemo 1": Excerpt(
        f"Epoch 0:   1%|{BAR}       | 795/77225 [9:07:58<878:01:48, 41.36s/it, loss=3.1, v_num=, "
        "reduced_train_loss=3.090, global_step=794.0, consumed_samples=1.63e+6]",
        (("loss", 794, 3.09), ("samples", 794, 1.63e6)),
    ),
    # Lightning-AI/pytorch-lightning issue 11471
    "lightning": Excerpt(
        f"\rEpoch 2:  60%|{BAR}  | 9/15 [02:53<01:18, 15.76s/it, loss=0.529, v_num=l1_0]"
        f"\rEpoch 2:  67%|{BAR}  | 10/15 [02:53<01:18, 15.76s/it, loss=0.429, v_num=l1_0]",
        (("loss", 40, 0.429), ("loss", 39, 0.529)),
    ),
    # SY-Xuan/Pink issue 6; the bar that follows tells the step
    "hf trainer": Excerpt(
        "{'loss': 2.0491, 'grad_norm': nan, 'learning_rate': 0.00012142857142857143, 'epoch': 0.0}\n"
        f"\r 14%|{BAR}        | 380/2724 [14:02:33<86:01:24, 132.12s/it]\n"
        "{'loss': 2.0312, 'grad_norm': 1.7599466443061829, 'learning_rate': 0.0001, 'epoch': 0.0}\n"
        f"\r 14%|{BAR}        | 390/2724 [14:02:33<86:01:24, 132.12s/it]\n",
        (("loss", 380, 2.0491), ("grad_norm", 380, math.nan), ("loss", 390, 2.0312), ("lr", 390, 1e-4)),
    ),
    # modelscope/ms-swift
    "ms-swift": Excerpt(
        '{"loss": 1.26439127, "grad_norm": 0.5213, "learning_rate": 9.9e-05, "memory(GiB)": 20.1, "epoch": 0.4,'
        ' "global_step/max_steps": "602/2161", "percentage": "27.86%"}',
        (("loss", 602, 1.26439127), ("grad_norm", 602, 0.5213), ("lr", 602, 9.9e-5)),
    ),
    # hiyouga/LLaMA-Factory, trainer_log.jsonl
    "llamafactory": Excerpt(
        '{"current_steps": 10, "total_steps": 500, "loss": 1.8732, "lr": 5e-06, "epoch": 0.06, "percentage": 2.0}',
        (("loss", 10, 1.8732), ("lr", 10, 5e-6)),
    ),
    # verl-project/verl issue 2060
    "verl": Excerpt(
        "(TaskRunner pid=87031) step:83 - global_seqlen/min:340538.000 - global_seqlen/max:369082.000 - actor/kl_loss:"
        "0.024 - actor/pg_loss:-0.012 - actor/grad_norm:0.806 - actor/lr:0.000 - training/global_step:83.000 -"
        " training/epoch:2.000 - val-aux/openai/gsm8k/reward/mean@1:0.565 - timing_s/step:98.5",
        (("loss", 83, -0.012), ("grad_norm", 83, 0.806), ("actor/kl_loss", 83, 0.024), ("step_s", 83, 98.5),
         ("val-aux/openai/gsm8k/reward/mean@1", 83, 0.565)),
    ),
    # OpenRLHF/OpenRLHF
    "openrlhf": Excerpt(
        f"Train epoch [1/1]:  10%|{BAR}   | 12/120 [01:02<09:18,  5.17s/it, "
        "policy_loss=-0.0213, actor_lr=5e-7, kl=0.01]",
        (("loss", 12, -0.0213), ("lr", 12, 5e-7)),
    ),
    # deepspeedai/DeepSpeed issue 931
    "deepspeed": Excerpt(
        "[2023-04-28 06:59:46,878] [INFO] [logging.py:96:log_dist] [Rank 0] step=510, skipped=8, lr=[9.65e-06, 0.0005],"
        " mom=[(0.9, 0.95), (0.9, 0.95)]",
        (("skipped", 510, 8), ("lr", 510, 9.65e-6)),
    ),
    # deepspeedai/DeepSpeed, timer
    "deepspeed timer": Excerpt(
        "[2023-04-28 06:59:46,879] [INFO] [timer.py:199:stop] epoch=0/micro_step=2000/global_step=500,"
        " RunningAvgSamplesPerSec=519.1, CurrSamplesPerSec=519.4, MemAllocated=1.2GB, MaxMemAllocated=5.1GB",
        (("CurrSamplesPerSec", 500, 519.4),),
    ),
    # facebookresearch/fairseq issue 2332
    "fairseq": Excerpt(
        "2020-07-17 04:08:14 | INFO | train_inner | epoch 003:    100 / 2952087 loss=16.348, nll_loss=14.1, ppl=83437.5"
        ", wps=8640.2, ups=4.66, wpb=1854, bsz=2, num_updates=70100, lr=1e-06, gnorm=4.215, loss_scale=128, wall=120",
        (("loss", 70100, 16.348), ("nll_loss", 70100, 14.1), ("lr", 70100, 1e-6), ("grad_norm", 70100, 4.215),
         ("loss_scale", 70100, 128)),
    ),
    # facebookresearch/fairseq issue 506
    "fairseq old": Excerpt(
        "| epoch 030 | loss 3.736 | nll_loss 2.045 | ppl 4.13 | wps 1.18305e+06 | ups 2.8 | wpb 417527 | bsz 14131 |"
        " num_updates 11001 | lr 0.000602995 | gnorm 0.434 | clip 100% | oom 0 | loss_scale 2.000 | wall 4464",
        (("loss", 11001, 3.736), ("grad_norm", 11001, 0.434), ("lr", 11001, 0.000602995)),
    ),
    # facebookresearch/fairseq issue 301: 8223 steps an epoch
    "fairseq oldest": Excerpt(
        "| epoch 010  2000 / 8223 loss=1.27 (1.50), wps=962, wpb=908, bsz=32, lr=0.001, clip=100%, gnorm=2.1427",
        (("loss", 9 * 8223 + 2000, 1.27), ("grad_norm", 9 * 8223 + 2000, 2.1427)),
    ),
    # facebookresearch/fairseq issue 2201
    "fairseq json": Excerpt(
        '{"epoch": 27, "update": 26.267, "loss": "8.206", "nll_loss": "7.049", "ppl": "132.47", "num_updates": "33700",'
        ' "lr": "0.00017226", "gnorm": "1.833", "train_wall": "61"}',
        (("loss", 33700, 8.206), ("grad_norm", 33700, 1.833), ("lr", 33700, 0.00017226)),
    ),
    # karpathy/nanoGPT issues 215 and 178
    "nanogpt": Excerpt(
        "2023-03-22 09:32:32 step 3000: train loss 4.0390, val loss 4.0427\n"
        "2023-03-22 09:32:41 iter 3000: loss 4.2490, time 35392.33ms, mfu 13.85%\n"
        "iter 3010: loss nan, time 1019.95ms, mfu 14.12%",
        (("loss", 3000, 4.249), ("step_s", 3000, 35.39233), ("val loss", 3000, 4.0427), ("loss", 3010, math.nan)),
    ),
    # karpathy/build-nanogpt
    "build-nanogpt": Excerpt(
        "step     7 | loss: 9.525482 | lr 7.7225e-06 | norm: 2.4103 | dt: 320.12ms | tok/sec: 1637890.25",
        (("loss", 7, 9.525482), ("lr", 7, 7.7225e-6), ("grad_norm", 7, 2.4103), ("step_s", 7, 0.32012)),
    ),
    # karpathy/llm.c
    "llm.c": Excerpt(
        "step    37/19560 | loss 7.312004 (+1.23z)| norm 1.2041 (-0.5z)| lr 3.17e-05 | 286.93 ms | 45.1% bf16 MFU |"
        " 1827411 tok/s",
        (("loss", 37, 7.312004), ("grad_norm", 37, 1.2041), ("lr", 37, 3.17e-5)),
    ),
    # allenai/OLMo issue 692
    "olmo": Excerpt(
        "2024-08-06 10:00:05.520 host-160750:0  olmo.train:908  INFO    [step=2/739328,epoch=0]\n"
        "    optim/total_grad_norm=0.0302\n    train/CrossEntropyLoss=12.18\n    train/Perplexity=195,153\n"
        "    System/Peak GPU Memory (MB)=53,695",
        (("loss", 2, 12.18), ("grad_norm", 2, 0.0302), ("train/Perplexity", 2, 195153)),
    ),
    # mlc-ai/pith-train pull request 7
    "pith-train": Excerpt(
        "2026-04-01 14:06:36 | INFO | step 00000012/00000015 | step-time 73.352 sec | cross-entropy-loss 2.6636 |"
        " load-balance-loss 0.001807 | learning-rate 1.000000e-06 | gradient-norm 20.2657 | tokens-per-second 28,590",
        (("loss", 12, 2.6636), ("lr", 12, 1e-6), ("grad_norm", 12, 20.2657), ("step_s", 12, 73.352)),
    ),
    # AI-Hypercomputer/maxtext pull request 4847
    "maxtext": Excerpt(
        "I0811 21:54:55.531340 138304841739136 metric_logger.py:226] completed step: 1, seconds: 0.631, TFLOP/s/device:"
        " 5688.282, Tokens/s/device: 311629.521, total_weights: 1572864, loss: 12.979, lm_loss: 12.978",
        (("loss", 1, 12.979), ("step_s", 1, 0.631), ("lm_loss", 1, 12.978)),
    ),
    # facebookresearch/detectron2 issue 3363
    "detectron2": Excerpt(
        "[08/14 10:26:13 d2.utils.events]:  eta: 0:43:51  iter: 6319  total_loss: 0.4072  loss_cls: 0.06762  loss_mask:"
        " 0.1505  time: 0.4464  data_time: 0.0375  lr: 0.0003  max_mem: 1962M",
        (("loss", 6319, 0.4072), ("loss_cls", 6319, 0.06762), ("lr", 6319, 0.0003), ("step_s", 6319, 0.4464)),
    ),
    # facebookresearch/Detectron issue 610
    "detectron": Excerpt(
        'json_stats: {"accuracy_cls": 1.000000, "eta": "0:21:51", "iter": 55080, "loss": 0.024404, "loss_bbox":'
        ' 0.000645, "lr": 0.000025, "mb_qsize": 64, "time": 0.266505}',
        (("loss", 55080, 0.024404), ("lr", 55080, 0.000025)),
    ),
    # open-mmlab/mmdetection issue 2785
    "mmdetection": Excerpt(
        "2020-05-21 04:01:33,217 - mmdet - INFO - Epoch [2][19/678]\tlr: 0.00020, eta: 1 day, 16:44:26, time: 1.413,"
        " data_time: 0.116, memory: 9581, loss_rpn_cls: 0.6978, s0.loss_cls: 0.4852, s0.acc: 92.1875, loss: 3.0130,"
        " grad_norm: 186.7009",
        (("loss", 697, 3.013), ("lr", 697, 0.0002), ("grad_norm", 697, 186.7009), ("s0.loss_cls", 697, 0.4852)),
    ),
    # open-mmlab/mmdetection issue 11893
    "mmengine": Excerpt(
        "08/03 22:09:24 - mmengine - INFO - Epoch(train)  [1][ 500/2931]  lr: 2.0000e-02  eta: 0:39:15  time: 0.0578"
        "  data_time: 0.0017  memory: 2389  loss: nan  loss_rpn_cls: nan  acc: 0.0000  loss_bbox: nan",
        (("loss", 500, math.nan), ("lr", 500, 0.02), ("loss_bbox", 500, math.nan)),
    ),
    # modelscope/scepter issue 48
    "scepter": Excerpt(
        "scepter [INFO] 2024-10-06 20:19:51,817 [File: log.py Function: _print_iter_log at line 71]  Stage [train] "
        "iter: [10/500], data_time: 1.0402(1.0402), time: 1.4696(1.4696), loss: 0.0978(0.0978), pg0_lr: 0.000100",
        (("loss", 10, 0.0978), ("step_s", 10, 1.4696)),
    ),
    # tensorflow/models issue 2980
    "tensorflow": Excerpt(
        "INFO:tensorflow:global step 7: loss = 57.9715 (16.765 sec/step)", (("loss", 7, 57.9715),)
    ),
    # pytorch/examples, imagenet
    "imagenet": Excerpt(
        "Epoch: [0][  10/5005]\tTime  0.311 ( 1.204)\tData  0.000 ( 0.7)\tLoss 6.9912e+00 (7.0120e+00)\tAcc@1   0.00"
        " (  0.10)",
        (("loss", 10, 6.9912), ("step_s", 10, 0.311)),
    ),
    # pytorch/examples, mnist
    "mnist": Excerpt("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.310731", (("loss", 640, 2.310731),)),
    # pytorch/examples, word_language_model
    "language model": Excerpt(
        "| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 12.31 | loss  7.63 | ppl  2051.14",
        (("loss", 200, 7.63), ("lr", 200, 20.0)),
    ),
    # huggingface/pytorch-image-models
    "timm": Excerpt(
        "Train: 0 [  50/1251 (  4%)]  Loss: 6.943 (6.95)  Time: 0.381s, 2686.20/s  (0.5s, 2000.1/s)  LR: 1.000e-06"
        "  Data: 0.012 (0.1)",
        (("loss", 50, 6.943), ("lr", 50, 1e-6)),
    ),
    # facebookresearch/mae
    "mae": Excerpt(
        "Epoch: [3]  [  20/1251]  eta: 0:20:33  lr: 0.000012  loss: 0.6951 (0.7012)  time: 0.6123  data: 0.0012"
        "  max mem: 12345",
        (("loss", 3 * 1251 + 20, 0.6951), ("lr", 3 * 1251 + 20, 0.000012)),
    ),
    # PaddlePaddle/PaddleNLP
    "paddlenlp": Excerpt(
        "[2023-02-01 10:11:12,345] [    INFO] - loss: 10.91830254, learning_rate: 2.5e-06, global_step: 20,"
        " interval_runtime: 8.2, interval_samples_per_second: 1.9",
        (("loss", 20, 10.91830254), ("lr", 20, 2.5e-6)),
    ),
    # Lightning-AI/litgpt
    "litgpt": Excerpt(
        "Epoch 1 | iter 10 step 5 | loss train: 2.314, val: n/a | iter time: 401.23 ms (step)",
        (("loss", 5, 2.314), ("step_s", 5, 0.40123)),
    ),
    # mosaicml/composer
    "composer": Excerpt(
        "[batch=12/4800]:\n\t Train time/batch: 11\n\t Train loss/train/total: 11.9231\n"
        "\t Train lr-DecoupledAdamW/group0: 0.0001\n",
        (("loss", 12, 11.9231),),
    ),
    # mosaicml/llm-foundry behind srun --label
    "composer behind labels": Excerpt(
        "0: [batch=12/4800]:\n0: \t Train time/batch: 11\n0:       Train loss/train/total: 11.9231\n"
        "0: [batch=13/4800]:\n0:       Train loss/train/total: 11.9\n0: saved\n",
        (("loss", 12, 11.9231), ("loss", 13, 11.9)),
    ),
    # NVIDIA-NeMo/RL: the values of a step stand in lists below its title
    "nemo-rl": Excerpt(
        "========================= Step 3/150 =========================\n\u25b6 Preparing batch...\n"
        "\U0001f4ca Training Results:\n  \u2022 Loss: 0.0213\n  \u2022 Avg Reward: 0.3125\n\n\u23f1\ufe0f  Timing:\n"
        "  \u2022 Total step time: 41.27s\n  \u2022 generation: 11.31s (27.4%)\n"
        "========================= Step 4/150 =========================\n  \u2022 Loss: nan\n",
        (("loss", 3, 0.0213), ("step_s", 3, 41.27), ("loss", 4, math.nan)),
    ),
    # InternLM/xtuner issue 658
    "xtuner": Excerpt(
        "2024/05/07 12:12:19 - mmengine - INFO - Iter(train) [1010/2046]  lr: 1.0704e-04  eta: 0:56:54  time: 18.9265"
        "  data_time: 16.0600  memory: 15266  loss: 0.7775  grad_norm: 0.0009",
        (("loss", 1010, 0.7775), ("grad_norm", 1010, 0.0009), ("lr", 1010, 1.0704e-4)),
    ),
    # k2-fsa/icefall pull request 314: the second loss is an average
    "icefall": Excerpt(
        "2022-04-29 10:31:21,003 INFO [train.py:756] Epoch 0, batch 50, loss[loss=0.474, simple_loss=0.948, over 2494.0"
        " frames.], tot_loss[loss=0.5125, simple_loss=1.025, over 4913.84 frames.], batch size: 86, lr: 3.00e-03",
        (("loss", 50, 0.474), ("loss #2", 50, 0.5125), ("lr", 50, 0.003)),
    ),
    # mindspore-lab/mindyolo issue 279
    "mindyolo": Excerpt(
        "2024-04-07 07:17:26,110 [INFO] Epoch 15/300, Step 100/101, imgsize (640, 640), loss: 0.6954, lbox: 0.1504,"
        " cur_lr: 0.009580000303685665",
        (("loss", 14 * 101 + 100, 0.6954),),
    ),
    # kohya-ss/sd-scripts
    "kohya": Excerpt(
        f"steps:   5%|{BAR}▍      | 80/1600 [01:10<22:10,  1.14it/s, avr_loss=0.0812]", (("avr_loss", 80, 0.0812),)
    ),
    # huggingface/diffusers
    "diffusers": Excerpt(
        "Steps:   1%|▏     | 120/10000 [00:58<1:20:02,  2.06it/s, lr=1e-5, step_loss=0.0312]",
        (("loss", 120, 0.0312), ("lr", 120, 1e-5)),
    ),
    # vpetren/gradnorm_tf issue 17
    "epochs only": Excerpt("epoch: 3442 loss: 0.2105546216666698\nepoch: 3451 loss: nan", (("loss", 3451, math.nan),)),
}  # fmt: skip


@pytest.mark.parametrize("name", EXCERPTS)
def test_public_formats_are_read_without_a_pattern(name: str) -> None:
    excerpt = EXCERPTS[name]
    found = {(row["name"], row["step"]): row["value"] for row in series(excerpt.text).iter_rows(named=True)}
    for metric, step, value in excerpt.points:
        assert found.get((metric, step)) == pytest.approx(value, nan_ok=True), (metric, step, found)


def series(text: str) -> pl.DataFrame:
    """The table of a log's text."""
    return read_log_series(text.encode())
