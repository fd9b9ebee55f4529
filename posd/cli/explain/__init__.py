"""`posd explain`: the meaning of every code of posd. All texts are in one catalogue."""
