"""The texts of `posd explain`: a file for the codes of each kind, each row in English and in Spanish."""
