"""An image and a conversation become tickets and ids.

`processing` is a processing class, `native` the checkpoint's own processor, `placeholder` the string that
stands for one image in a prompt, and `row` the index of a row in a batch, for messages.
"""
