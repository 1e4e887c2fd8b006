"""The write side: starts workers, lets cases take turns, survives their failures, stores records.

Rules: the parent sleeps while a worker measures and only looks up a few times a second; a record reaches the store when
its case has ended; whatever happens becomes a record or one clear line.
"""
