"""What runs inside a trial's processes."""
