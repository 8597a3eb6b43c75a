"""Other projects' own trainers, which docs/migrate.md compares with: each runs in its own environment."""
