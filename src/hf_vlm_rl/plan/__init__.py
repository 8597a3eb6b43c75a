"""What a GRPO run needs of each GPU, from a checkpoint's config and processor alone.

A step is run on the meta device, with the policy's own code: shapes without memory. `dry` makes that
possible and counts, `step` is the step, `memory` adds up and finds the `settings` that
fit.
"""
