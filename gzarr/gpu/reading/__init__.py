"""Encoded chunks from stores and files into memory that the device can reach."""
