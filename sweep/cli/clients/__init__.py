"""What programs that drive sweeps use: schemas of what is printed, a server of tools, a check of the machine."""
