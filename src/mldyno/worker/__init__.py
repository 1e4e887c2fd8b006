"""The child process that computes: standard library only, plus the framework it measures.

It is started as a script by path (`start.py`), so that any interpreter can run it, whether mldyno
is installed there or not. It reads one JSON object a line and answers in kind; between its turns it
sleeps in a read. It ends when its parent does.
"""
