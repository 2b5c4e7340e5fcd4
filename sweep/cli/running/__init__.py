"""Commands to sweeps that run, or go on: how their driver is carried out, and what is said to one elsewhere."""
