"""All code of card payments: model, rules, database rows, use cases, API calls and documents."""
