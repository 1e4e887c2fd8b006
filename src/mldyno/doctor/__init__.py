"""The check-up of a machine: why a GPU is not used, what works on each device, how free and quiet the machine is."""
