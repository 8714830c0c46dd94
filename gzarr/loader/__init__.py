"""Training batches from arrays: exactly shuffled, every chunk decoded few times, memory within a cap."""
