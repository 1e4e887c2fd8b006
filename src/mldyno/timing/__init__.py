"""The only place where time is taken: clock, blocks, warm-up, stopping.

Rules: one block is k steps and one synchronisation on the host's monotonic clock; the harness owns
the synchronisation; nothing but the steps happens inside a block. Standard library only.
"""
