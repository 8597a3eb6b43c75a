"""A pretend CUDA card: tensors that say `cuda:0` and are computed on the CPU.

    python -m tests.card internvl gemma3      # a table of waits and kernels, stock against policy

It finds tensors on the wrong device, and counts how often the host waits for the card and how many kernels it
launches. It says nothing of CUDA's numbers, speed, memory, compiled code, streams or several cards. A process
that has had a pretend card keeps it: tests start processes of their own.
"""
