"""mldyno beside its peers: the same step timed by several tools, side by side.

One file per tool. A file has two sides: the bench's own, which says how the tool is started, and the
tool's, which runs in the tool's own virtual environment and is called by `python -m`.
"""
