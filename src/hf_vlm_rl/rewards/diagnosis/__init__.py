"""What rewards say of a batch before training, and of a run while it trains."""
