"""What runs in virtual time: plans of sweeps, and recorded ones under other rules."""
