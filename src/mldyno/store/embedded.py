"""Records within a page: JSON lines, packed as gzip and base64 into one element of it.

Packed text has only letters, digits and `+/=`, so whatever stands in a record, it can't end the element.
What is read back is a stranger's file: its length is limited, packed and unpacked.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from mldyno.store.codec import BadRecord

TAG = '<script type="text/plain" id="records">'
END = "</script>"
LONGEST_PAGE_B = 64 << 20  # that is read; those that are written stay under 10 MB
LONGEST_RECORDS_B = 2 << 30  # in a page, unpacked
PACKED_B = 4_500_000  # that packed records may take of a page, as base64


@dataclass(frozen=True)
class Packed:
    """Packed text, and how many of the records it holds: as many, from the first on, as there was room for."""

    text: str
    records: int


def pack(texts: Iterable[str], room: int = PACKED_B) -> Packed:
    """Records, given as their texts, packed into about so many B for a page; the time of packing is not in it."""
    squeeze = zlib.compressobj(6, zlib.DEFLATED, 31)  # 31: with gzip's header
    chunks, size, count = [], 0, 0
    for text in texts:
        if size + len(text) / 2 > room * 3 / 4:  # numbers in words shrink to less than half
            break
        chunks.append(squeeze.compress(text.encode() + b"\n"))
        size += len(chunks[-1])
        count += 1
    return Packed(base64.b64encode(b"".join([*chunks, squeeze.flush()])).decode(), count)


def unpacked(page: BinaryIO) -> BinaryIO:
    """The JSON lines in a page, to be read a line at a time."""
    content = page.read(LONGEST_PAGE_B + 1)
    if len(content) > LONGEST_PAGE_B:
        raise BadRecord(f"a page of over {LONGEST_PAGE_B >> 20} MiB is not a report of mldyno")
    _, tag, rest = content.partition(TAG.encode())
    packed, ended, _ = rest.partition(END.encode())
    if not tag:
        raise BadRecord("this page holds no records; name a report that `mldyno report` wrote")
    if not ended:
        raise BadRecord("the report is cut off within its records; get the whole file")
    try:
        return _Limited(gzip.GzipFile(fileobj=io.BytesIO(base64.b64decode(packed.strip(), validate=True))))
    except binascii.Error:
        raise BadRecord("the records in the report are damaged: not base64") from None


class _Limited(io.BufferedReader):
    """Lines of packed records; damage and lengths without end are errors of the file."""

    def __init__(self, packed: gzip.GzipFile) -> None:
        super().__init__(packed)
        self._left = LONGEST_RECORDS_B

    def readline(self, size: int | None = -1) -> bytes:
        """The next line."""
        try:
            line = super().readline(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadRecord(f"the records in the report are damaged: {error}") from None
        self._left -= len(line)
        if self._left < 0:
            raise BadRecord(f"the records in the report are over {LONGEST_RECORDS_B >> 30} GiB long")
        return line
