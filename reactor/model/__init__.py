"""The words of the domain as frozen values: no I/O, no clock, nothing from above.

One module a noun. A value that did not change stays the same object, so that "is" tells whether a slice moved.
"""
