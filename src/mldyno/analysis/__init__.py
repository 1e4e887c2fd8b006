"""The read side's thinking: records in, numbers and verdicts out. Pure: no files, no clock, no print."""
