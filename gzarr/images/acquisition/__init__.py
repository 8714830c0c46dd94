"""Frames written as they come."""
