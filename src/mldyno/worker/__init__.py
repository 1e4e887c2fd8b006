"""Workers. `client` starts one, sends it commands, watches and ends it, with `process_tree` and, for nodes, `joining`.

All other files are the child process: standard library only, plus the framework that it measures. It is started as a
script by path (`start.py`), so that any interpreter can run it, whether mldyno is installed there or not. It reads one
JSON object a line and answers in kind; between turns it sleeps in a read. It ends when its parent does.

Rules of the parent: it sleeps while a worker measures, and only looks up a few times a second; whatever a worker does
is an answer with the right type, or `Ended` with a status and a reason; all processes that it started end with it.
"""
