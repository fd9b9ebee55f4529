"""Parts of every call of the local API: its row, its parameters, its response, its stream."""
