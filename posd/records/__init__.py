"""Shared code of payments and print jobs. `RecordKind` holds their differences."""
