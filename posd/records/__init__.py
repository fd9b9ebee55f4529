"""What payments and print jobs share: phases, quarantine, reprocessing, faults of requests, places in the feed."""
