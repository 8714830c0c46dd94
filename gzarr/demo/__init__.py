"""A short tour on real data: ``python -m gzarr demo``. `story.py` tells it, the other files each hold one part."""
