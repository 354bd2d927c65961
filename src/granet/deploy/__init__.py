"""Sparse networks at work: plans of operators, and what runs them."""
