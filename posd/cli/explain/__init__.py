"""`posd explain`: every code of posd as text, from one table."""
