"""The command ``gzarr``: one file a command."""
