"""Very many print jobs, with a terminal that is away for a while in the middle of them."""
