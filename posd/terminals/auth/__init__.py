"""Authentication of calls to terminals: a request goes in, the request that is sent comes out (`request`).

The schemes are `hash_encrypt` and `hmac_sha256`, chosen by `auth` in the configuration (`schemes`); the configured
headers go along with each. A further one is a module here and a line there: who makes calls does not change. A scheme
sees all that is sent but Host and Content-Length, which follow from the URL and the body. What a refused call says of
the clocks: `clock`. Signatures of webhooks, which come the other way: `webhooks`.
"""
