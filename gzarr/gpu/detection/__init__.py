"""Which GPU is there, whether its answers are trusted, and from which sizes it pays."""
