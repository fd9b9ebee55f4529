"""`posd watch`: a live view of terminals, payments and attentions."""
