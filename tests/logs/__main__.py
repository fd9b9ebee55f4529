"""Write docs/reference/logs.md from the table of events: `python -m tests.logs`."""

from tests.logs.page import PAGE, page

PAGE.write_text(page())
