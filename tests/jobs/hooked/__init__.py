"""Jobs whose operations torch's FlightRecorderHook records, as those of nccl2, on a CPU: torch 2.15 or later."""
