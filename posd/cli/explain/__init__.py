"""`posd explain`: every code of posd in words, from one table."""
