"""What devices exist, and how a process is shown some of them."""
