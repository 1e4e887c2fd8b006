"""The only place where time is taken.

`clock` is the one clock; `blocks` times steps in blocks, in rounds of several programs, and phases of a step;
`stopping` says when steps are warm and when enough was measured; `energy` does the same for counters and power sensors;
`loops` and `replays` time a loop that a user runs.

Rules: one block is k steps and one synchronisation on the host's monotonic clock; the harness owns the synchronisation;
nothing but the steps happens inside a block. Standard library only.
"""
