"""All code of print jobs: model, rules, database rows, use cases, API calls and documents."""
