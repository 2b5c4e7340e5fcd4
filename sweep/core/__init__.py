"""The part that thinks: trials, packing and the state machine, as pure functions of facts."""
