"""Text, tables and charts from analysis. A view formats; it decides nothing."""
