"""Where records live: one SQLite file, safe for several processes at once and after any kill.

`codec` turns text into checked records and back; `sqlite` keeps them; `query` says which are meant;
`reference` reads the published figures; `transfer` moves records in and out of files, `proofs` says
whose they are; `rescue` writes a file where the store can't be written.
"""

from mldyno.store.query import Query
from mldyno.store.sqlite import Store, default_path

__all__ = ["Query", "Store", "default_path"]
