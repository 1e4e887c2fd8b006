"""Where records live: one SQLite file, safe for several processes at once and after any kill."""

from mldyno.store.query import Query
from mldyno.store.sqlite import Store, default_path

__all__ = ["Query", "Store", "default_path"]
