"""What c10d, Python, torchrun and the scheduler print of a job that goes wrong, as events.

Sources of the forms: ProcessGroupNCCL.cpp, ProcessGroupGloo.cpp, ProcessGroupWrapper.cpp and TraceUtils.h of torch 1.8
to 2.15, torch/distributed/elastic/multiprocessing/errors, and logs of real jobs.
"""
