"""Checks what is stored: verifies every chunk of a hierarchy, compares two hierarchies, repairs what is asked for."""
