"""What payments and print jobs share; `RecordKind` holds what differs where both are handled in one way."""
