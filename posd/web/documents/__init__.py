"""What the local API answers, as types: the handlers build and encode them, and its description is made of them.

Names and order of the fields are the wire's. The annotations are kept as text (`from __future__`) until somebody asks
for the description: encoding needs none of them, and it is a small machine. A member with the type `Raw` goes out with
the bytes that it came with; `Wire` says what is in them.
"""
