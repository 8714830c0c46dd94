"""Functions of users over the blocks of arrays and images."""
