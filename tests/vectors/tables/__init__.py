"""The vectors as tables: what is written here is what stands in the files. `python -m tests.vectors.make` writes them.

What is expected was thought out from the spec and the design. Nothing here asks posd.
"""
