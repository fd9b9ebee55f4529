"""Common parts of all calls of the local API: table row, parameters, response, stream."""
