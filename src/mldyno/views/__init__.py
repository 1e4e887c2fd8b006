"""Analysis made into text: tables, verdicts, stories of a record. Formats only; decides nothing."""
