"""Many trials as lanes of one batched computation: what the user writes, and what runs it in a worker."""
