"""Authentication of calls to terminals: it turns a request into the request that is sent (`request`).

The schemes are `hash_encrypt` and `hmac_sha256`, chosen by `auth` in the configuration (`schemes`). The configured
headers are sent with each. A further scheme is a module here and a line there; the callers stay as they are. A scheme
gets all of the request except Host and Content-Length, which follow from the URL and the body. `clock`: what a refused
call shows about the clocks. `webhooks`: signatures of webhooks, in the other direction.
"""
