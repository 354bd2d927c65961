"""The desk at which the paper is measured again: its tables, our numbers beside them, and the pages about both.

It runs from a checkout, `python -m paper`, and is not installed; it stands on top of `granet`, which knows nothing of
it.
"""
