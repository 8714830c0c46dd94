"""Advice on how arrays are best stored for a GPU to read: what to change, why, and what it should gain."""

from gzarr.advising.advice import Advice, Finding, Gain, GroupAdvice
from gzarr.advising.entry import advise

__all__ = ["Advice", "Finding", "Gain", "GroupAdvice", "advise"]
