"""`posd watch`: a live view of terminals, payments and what needs a person."""
