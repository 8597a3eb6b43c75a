"""A checkpoint becomes a policy.

`source` is a Hub id or a directory, `hub` the arguments of `location.HUB_ARGUMENTS` that came with it, `located`
those of them that say where a single file is (`revision`, `token`, `cache_dir`, ...), and `stored` its config.json.
"""
