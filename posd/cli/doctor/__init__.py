"""`posd doctor`: looks at everything on which payments depend, changes nothing, and says what to do."""
