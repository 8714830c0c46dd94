"""Times and bytes of every stage of a read or write: recorded by the code, reported to the user."""
