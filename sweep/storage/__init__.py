"""Storage that other machines reach: who owns an experiment there, what is sent, and what is fetched."""
