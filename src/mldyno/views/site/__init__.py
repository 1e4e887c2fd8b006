"""A static site of a store: its machines with their scores, every work ranked, and any two machines side by side.

`collection` is what it shows; `bars` places bars on a scale; `pages` writes the files, from templates in `data/site/`.
"""
