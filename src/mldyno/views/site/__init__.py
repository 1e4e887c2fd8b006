"""A static site of records: machines with their scores, rankings of work, and pages to compare machines."""
