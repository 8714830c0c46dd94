"""Where chunks are: in objects of their own, or in ranges of shards."""
