"""The report: one page that holds charts, tables, what they say, and the records they come from.

`subject` is what a report is about; `summary` is its first screen, and each section is a function from it to its
parts (`sections`); `page` puts them into one file, `pictures` saves its charts as PNG or SVG, `card` draws the one
picture to post.
"""
