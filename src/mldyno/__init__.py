"""mldyno: a dynamometer for deep-learning machines."""

__version__ = "0.1.0"
