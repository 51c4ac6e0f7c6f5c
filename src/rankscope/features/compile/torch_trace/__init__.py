"""Structured logs of torch.compile: files of TORCH_TRACE, and the raw.jsonl that tlparse makes of them."""
