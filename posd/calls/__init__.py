"""What every call of the local API is made of: its row, its parameters, its answer, its stream."""
