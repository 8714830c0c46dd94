"""Codecs on the device: one batch of chunks at a time."""
