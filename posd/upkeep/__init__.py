"""What is done to the database as a whole: verify, restore, merge, salvage, retention."""
