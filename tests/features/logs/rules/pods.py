"""Descriptions of pods, in the form of kubectl describe."""

from __future__ import annotations


def described(
    pod: str, code: int, reason: str, finished: str = "Tue, 03 Jun 2025 09:19:02 +0000", rank: int = 3
) -> str:
    """The description of a pod whose container has ended."""
    return f"""\
Name:             {pod}
Namespace:        ml
Node:             gpu-node-07/10.0.3.17
Start Time:       Tue, 03 Jun 2025 09:06:40 +0000
Labels:           training.kubeflow.org/job-name=llama
                  training.kubeflow.org/replica-index=2
Status:           Failed
Containers:
  pytorch:
    Container ID:  containerd://5b8e0d
    Port:          23456/TCP
    State:          Terminated
      Reason:       {reason}
      Exit Code:    {code}
      Started:      Tue, 03 Jun 2025 09:06:48 +0000
      Finished:     {finished}
    Ready:          False
    Restart Count:  1
    Environment:
      MASTER_ADDR:  llama-master-0
      WORLD_SIZE:   4
      RANK:         {rank}
Conditions:
  Type              Status
  Ready             False
Events:
  Type    Reason   Age   From     Message
  ----    ------   ----  ----     -------
  Normal  Started  14m   kubelet  Started container pytorch"""
