"""Write the rows of docs/reference/scenarios.md from the scenario files."""

from tests.catalogue.document import DOCUMENT, document

DOCUMENT.write_text(document(), encoding="utf-8")
print(f"written: {DOCUMENT}")
