"""A checkpoint becomes a policy.

`source` is a Hub id or a directory; `hub` are the arguments of `location.HUB_ARGUMENTS` that came with it.
Of these, `located` say where a single file is (`revision`, `token`, `cache_dir`, ...). `stored` is the
checkpoint's config.json.
"""
