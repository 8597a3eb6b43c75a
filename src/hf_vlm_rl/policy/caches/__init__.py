"""The caches of `generate`: which are known, and one whose rows share their prompts."""
