"""A user's own training loop, measured as it is: `mldyno.track`.

`tracker` is what the user holds; `process` describes the process that it runs in and what a batch has; `finishing`
makes the record, stores it and prints a line. Time is taken in `timing.loops`.
Rule: a fault in here never ends a training. It costs the measurement, and one line says so.
"""
