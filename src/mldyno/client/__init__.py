"""A worker as the parent sees it: the one place that starts, speaks to, watches and ends one.

Rules: the parent sleeps while a worker measures and only looks up a few times a second; whatever a worker does or says
is an answer of its type, or `Ended` with a status and a reason; with a worker ends all that it has started.
"""
