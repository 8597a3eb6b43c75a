"""Both training phases: each hands model, processor and dataset to a trainer as TRL ships it."""
