"""`posd tls`: the certificate with which terminals recognise this machine."""
