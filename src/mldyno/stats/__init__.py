"""Statistics on plain numbers: quantiles, intervals, autocorrelation, drift, change points. Standard library only."""
