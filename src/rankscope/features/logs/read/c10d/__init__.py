"""Events in the output of c10d, Python, torchrun and the scheduler for a job that fails.

Sources of the forms: ProcessGroupNCCL.cpp, ProcessGroupGloo.cpp, ProcessGroupWrapper.cpp and TraceUtils.h of torch 1.8
to 2.15, torch/distributed/elastic/multiprocessing/errors, and logs of real jobs.
"""
