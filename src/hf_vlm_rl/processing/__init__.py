"""An image and a conversation become tickets and ids."""
