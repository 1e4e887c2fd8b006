"""A worker as the parent sees it: the one place that starts, asks, watches and ends one.

Rules: the parent sleeps while a worker measures and only looks up a few times a second; whatever a worker does or says
is an answer with the right type, or `Ended` with a status and a reason; all processes that it started end with it.
"""
