"""Reads and writes of many chunks at once: locate, load, decode, place, and back."""
