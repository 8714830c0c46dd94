"""Advises how to store arrays for reads by a GPU: what to change, why, and what that should gain."""

from gzarr.advising.advice import Advice, Finding, Gain, GroupAdvice
from gzarr.advising.judging import advise

__all__ = ["Advice", "Finding", "Gain", "GroupAdvice", "advise"]
