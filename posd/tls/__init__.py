"""Certificates of the webhook listener: a local CA, a server certificate, and the context that serves it.

A terminal receives `ca.crt` once and then trusts every server certificate of this machine. So the CA is kept for as
long as possible, and only the server certificate is replaced. The keys of CA and server certificate stay on this
machine.

The import of this package loads only `ssl`. The functions that create certificates (`posd.tls.issue`) need the library
cryptography, which the daemon never loads.
"""
