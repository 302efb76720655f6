"""Numerical pieces that several methods use, written once.

Where a well-kept library has one, it is behind it.
"""
