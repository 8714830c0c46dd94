"""Batches of chunks through the device: read, decode, place; gather, encode, write."""
