"""What payments and print jobs share: problems, callback tokens, stored events, places in the feed."""
