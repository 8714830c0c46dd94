"""The compiled loop: many chunks of local files in one call, without the interpreter's lock."""
