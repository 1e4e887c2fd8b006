"""The report of records: one page with charts, tables, sentences and the records themselves; pictures; a card.

`subject` is what a report is about, `summary` its first screen; `speeds`, `scaling` and `details` hold its sections as
plain data (`parts`); `page` puts them into one file, and `pictures` draws charts and the card as PNG or SVG. What is
written is complete, or not there.
"""
