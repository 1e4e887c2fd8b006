"""The only place where time is taken.

`clock` is the one clock; `blocks` times steps in blocks, one after the other; `warmup` runs until they are steady;
`stopping` says when enough was measured; `rounds` takes blocks of several programs in turn, for paired comparisons;
`phases` times parts of a step; `spin` finds how much of each core can be had.

Rules: one block is k steps and one synchronisation on the host's monotonic clock; the harness owns
the synchronisation; nothing but the steps happens inside a block. Standard library only.
"""
