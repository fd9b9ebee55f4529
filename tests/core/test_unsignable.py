"""Parts of a till's request that a signed call would change.

posd reports the places of these parts before it records anything.
"""

from posd.records.request import unsignable
from tests.rig.tables import every


@every(
    ("parts", "reserved", "paths"),
    [
        ({"amount": b'{"iva":10.00,"extra_taxes":{"iac":0.1}}', "metadata": b'{"n":12345678901}'}, (), []),
        ({"amount": b'{"iva":1,"extra_taxes":{"iac":99999999999999.99999}}'}, (), ["/amount/extra_taxes/iac"]),
        ({"metadata": b'{"a/b":[{"7":1}],"big":9007199254740993}'}, (), ["/metadata/a~1b/0/7", "/metadata/big"]),
        ({"options": b'{"key":1}', "metadata": b'{"key":1}'}, ("options",), ["/options/key"]),
        ({"options": b'{"key":1}'}, (), []),
        ({"options": b'{"keys":1}'}, ("options",), []),
    ],
    ids=str,
)
def test_each_fault_names_its_place(parts: dict[str, bytes], reserved: tuple[str, ...], paths: list[str]) -> None:
    found = list(unsignable(parts, reserved))
    assert [fault.path for fault in found] == paths
    assert all("signed" in fault.message or "authentication" in fault.message for fault in found)
