"""The only place where time is taken.

`clock` is the one clock; `blocks` times steps in blocks: one after the other, in rounds of several programs, and
phases of a step; `warmup` runs until they are steady; `stopping` says when enough was measured; `spin` finds how
much of each core can be had.

Rules: one block is k steps and one synchronisation on the host's monotonic clock; the harness owns
the synchronisation; nothing but the steps happens inside a block. Standard library only.
"""
