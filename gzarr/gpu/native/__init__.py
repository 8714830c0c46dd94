"""Brings encoded chunks to devices and back by compiled code: Python beside the C sources, which the loop contains."""
